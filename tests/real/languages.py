"""Programs in many languages (programs/languages): how each is built and started, all with STEPS and PACE_MS."""
import os
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "programs" / "languages"
PATH = "/usr/local/bin:/usr/bin:/bin"

# The interpreter, its options, and what it runs.
INTERPRETED = {
    "ruby": ["ruby", "steps.rb"],
    "perl": ["perl", "steps.pl"],
    "lua": ["lua5.4", "steps.lua"],
    "r": ["Rscript", "steps.R"],
    "octave": ["octave-cli", "-q", "steps.m"],
    "guile": ["guile", "--no-auto-compile", "steps.scm"],
    "tcl": ["tclsh", "steps.tcl"],
    "sbcl": ["sbcl", "--script", "steps.lisp"],
    "php": ["php", "steps.php"],
}
# The source, the compiler with its options, of which the last names the program, and what starts that.
COMPILED = {
    "mono": ("Steps.cs", ["mcs", "-out:"], ["mono"]),
    "haskell": ("steps.hs", ["ghc", "-O", "-threaded", "-rtsopts", "-with-rtsopts=-N2", "-o"], []),
    "ocaml": ("steps.ml", ["ocamlopt", "-I", "+unix", "unix.cmxa", "-o"], []),
    "rust": ("steps.rs", ["rustc", "-O", "-o"], []),
}
# SIGUSR1 is theirs: it ends them.
OWN_SIGNAL = {"ruby", "r", "php"}
ALL = {*INTERPRETED, *COMPILED, "gawk"}


def found(program):
    """Where a program of the system is; None: it is not installed."""
    return shutil.which(program, path=PATH)


def built(source, folder, command, **env):
    """The program that `command`, with -o PROGRAM and the source behind it, makes in a folder of its own: some compilers write beside the source."""
    work = folder / f"{source.stem}-program"
    program = work / source.stem.lower()
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        work.mkdir(parents=True, exist_ok=True)
        copy = shutil.copy(source, work)
        out = [f"{command[-1]}{program}"] if command[-1].endswith(":") else [command[-1], program]
        subprocess.run([*command[:-1], *out, copy], cwd=work, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **env})
    return program


def command_of(name, folder, steps, pace):
    """The command that runs the program; None: its language is not installed."""
    if name == "gawk":
        gawk = found("gawk")
        return gawk and [gawk, "-v", f"steps={steps}", "-v", f"pace={pace}", "-f", SOURCES / "steps.awk"]
    if name in INTERPRETED:
        interpreter, *options, source = INTERPRETED[name]
        interpreter = found(interpreter)
        return interpreter and [interpreter, *options, SOURCES / source, steps, pace]
    source, compiler, starter = COMPILED[name]
    if not all(found(p) for p in (compiler[0], *starter)):
        return None
    return [*(found(p) for p in starter), built(SOURCES / source, folder / name, [found(compiler[0]), *compiler[1:]]), steps, pace]
