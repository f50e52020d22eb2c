#!/usr/bin/env python3
"""Completions load in their shells and offer what the help has: completions_test.py BUILD_DIR

bash is asked what it offers; zsh and fish read their files where they are installed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gpuckpt; printf "%s\\n" "${COMPREPLY[@]}"'


def run(*command, **how):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **how)


class Bash:
    def __init__(self, script, folder):
        self.script, self.folder = script, folder

    def offers(self, *words):
        done = run("bash", "--norc", "-c", ASK, "ask", self.script, "gpuckpt", *words, cwd=self.folder)
        if done.returncode or done.stderr:
            raise AssertionError(f"bash says of {words}: {done.stderr}")
        return set(done.stdout.split())


def check_bash(bash, gpuckpt, problems):
    def expect(words, offered):
        if bash.offers(*words) != set(offered):
            problems.append(f"bash offers {sorted(bash.offers(*words))} for {words}, not {sorted(offered)}")

    shown = run(gpuckpt, "--help").stdout
    verbs = re.findall(r"(?m)^  ([a-z]+)  ", shown)
    expect([""], [*verbs, "--help", "--version"])
    expect(["resu"], ["resume"])
    for verb in verbs:
        head = run(gpuckpt, verb, "--help").stdout.split("\n\nExit codes", 1)[0]
        options = re.findall(r"(?m)^  (-[^ {]+)", head)
        expect([verb, "-"], {name for option in options for name in option.split(",")})
    expect(["run", "--children", ""], ["all", "able", "ignore"])
    expect(["run", "--children", "=", "a"], ["all", "able"])
    expect(["run", "--every", ""], [])  # a duration: nothing to offer
    expect(["restore", "sto"], ["store-one", "store-two"])
    expect(["run", "--", "./some-pro"], ["./some-program"])


def main():
    gpuckpt = Path(sys.argv[1]) / "bin/gpuckpt"
    folder = Path(tempfile.mkdtemp(prefix="gpuckpt-completions-"))
    made = run(SOURCE / "scripts/completions", gpuckpt, folder)
    if made.returncode:
        sys.exit(made.stderr)
    work = folder / "work"
    work.mkdir()
    (work / "store-one").mkdir()
    (work / "store-two").mkdir()
    (work / "some-program").touch()
    os.chmod(work / "some-program", 0o755)
    problems = []
    check_bash(Bash(folder / "bash-completion/completions/gpuckpt", work), gpuckpt, problems)
    for shell, script in (("zsh", "zsh/site-functions/_gpuckpt"), ("fish", "fish/vendor_completions.d/gpuckpt.fish")):
        if shutil.which(shell) and (done := run(shell, "-n", folder / script)).returncode:
            problems.append(f"{shell} does not read its completion: {done.stderr}")
    if shutil.which("fish"):
        offered = run("fish", "-c", f"source {folder}/fish/vendor_completions.d/gpuckpt.fish; complete -C 'gpuckpt run --children '",
                      env={**os.environ, "HOME": str(work)}).stdout
        if {line.split("\t")[0] for line in offered.splitlines()} != {"all", "able", "ignore"}:
            problems.append(f"fish offers {offered!r} for --children")
    shutil.rmtree(folder)
    print("\n".join(problems) or "completions are complete")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
