"""Programs in many languages (programs/languages): how each is built and started, all with STEPS and PACE_MS."""
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
# The compiler, its options without -o PROGRAM, and what starts the program.
COMPILED = {
    "mono": (["mcs", "Steps.cs"], "-out:", ["mono"]),
    "haskell": (["ghc", "-O", "-threaded", "-rtsopts", "-with-rtsopts=-N2", "steps.hs"], "-o", []),
    "ocaml": (["ocamlopt", "-I", "+unix", "unix.cmxa", "steps.ml"], "-o", []),
    "rust": (["rustc", "-O", "steps.rs"], "-o", []),
}
# SIGUSR1 is theirs: it ends them.
OWN_SIGNAL = {"ruby", "r", "php"}
ALL = {*INTERPRETED, *COMPILED, "gawk"}


def found(program):
    """Where a program of the system is; None: it is not installed."""
    return shutil.which(program, path=PATH)


def built(name, command, out_option, folder):
    """Compiles in a folder of its own, as some compilers write beside the source."""
    source = SOURCES / command[-1]
    work = folder / f"{name}-program"
    program = work / "program"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        work.mkdir(parents=True, exist_ok=True)
        copy = shutil.copy(source, work)
        out = [f"{out_option}{program}"] if out_option.endswith(":") else [out_option, program]
        subprocess.run([found(command[0]), *command[1:-1], *out, copy], cwd=work, check=True, stdout=subprocess.DEVNULL)
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
    compiler, out_option, starter = COMPILED[name]
    if not all(found(p) for p in (compiler[0], *starter)):
        return None
    return [*(found(p) for p in starter), built(name, compiler, out_option, folder), steps, pace]
