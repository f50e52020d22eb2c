#!/usr/bin/env python3
"""The commands of the documentation do what it says: docs_test.py BUILD_DIR [PAGE...]

A block of README.md, CONTRIBUTING.md or docs/**/*.md is run when `<!-- run -->` stands on the line before it:

    <!-- run -->
    ```console
    $ gpuckpt list ckpt
    ...
    1 snapshot in ckpt, 1.4 MiB on disk
    ```

What a reader has and the test does not (a program, a shared disk) is prepared by the lines of a comment, each a command:

    <!-- run
    printf 'import time; time.sleep(9)' > train.py
    after 1: until [ -s train.log ]; do sleep 0.1; done
    -->

A line that begins with `after N:` is run in the block that follows, after its Nth command: it waits for what a reader sees.
`<!-- run where COMMAND -->`, and a comment that begins so, are left out where that command fails (a program is not installed).

All such blocks of a page are one bash session in a new folder, with the build's programs in PATH and the source folder
in $CHECKOUT. Each command must end with 0, unless the next one is `echo $?`; `doctor` may warn (3): what this machine lacks is
not the page's fault. Where output is shown, what the command
prints must match it: `...` stands for anything, each number and each snapshot id for any other.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^(?P<indent> *)<!-- run(?: where (?P<where>[^\n]+))? -->\n(?P=indent)```console\n(?P<shown>.*?)^(?P=indent)```$"
                   r"|^<!-- run(?: where (?P<only>[^\n]+))?\n(?P<prepares>.*?)^-->$", re.M | re.S)
AFTER = re.compile(r"after (\d+): (.*)")
ID = r"\d{8}-\d{9}-[a-z0-9]{4}"
LIMIT_S = 120


def steps(page):
    """[line, command, output that is shown, the command that says where it is run] of all blocks of a page that are run."""
    text, between = page.read_text(), {}
    for block in BLOCK.finditer(text):
        where = block["where"] or block["only"] or ""
        if block["prepares"] is not None:
            first = text[:block.start("prepares")].count("\n") + 1
            for number, line in enumerate(block["prepares"].splitlines(), first):
                if after := AFTER.fullmatch(line):
                    between[int(after[1])] = [number, after[2], [], where]
                else:
                    yield [number, line, [], where]
            continue
        first = text[:block.start("shown")].count("\n") + 1
        found = []
        for number, line in enumerate(block["shown"].splitlines(), first):
            line = line[len(block["indent"]):]
            if line.startswith("$ "):
                found.append([number, line[2:], [], where])
            elif found and found[-1][1].endswith("\\") and line.startswith("> "):
                found[-1][1] += "\n" + line[2:]
            elif found:
                found[-1][2].append(line)
            else:
                raise ValueError(f"{page}:{number}: output before the first command")
        for nth, step in enumerate(found, 1):
            yield step
            if nth in between:
                yield between.pop(nth)
        if between:
            raise ValueError(f"{page}:{first}: the block has no command {min(between)}")


def pattern(lines):
    """What the shown lines match: spaces of any width, any number for a number, anything for `...`."""
    words = []
    for word in re.split(rf"({ID}|\.\.\.|\d+(?:\.\d+)?|\s+)", "\n".join(lines).strip()):
        if word == "...":
            words.append(r"[\s\S]*")
        elif re.fullmatch(ID, word):
            words.append(ID)
        elif re.fullmatch(r"\d+(?:\.\d+)?", word):
            words.append(r"\d+(?:\.\d+)?")
        elif word.isspace():
            words.append(r"\s+")
        else:
            words.append(re.escape(word))
    return "".join(words)


class Session:
    """One bash, fed command by command."""

    def __init__(self, build):
        self.folder = Path(tempfile.mkdtemp(prefix="gpuckpt-docs-"))
        self.home = self.folder / "work"
        self.home.mkdir()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUCKPT_", "LD_"))}
        environment |= {"PATH": f"{build}/bin:{environment['PATH']}", "CHECKOUT": str(SOURCE), "BUILD": str(build)}
        self.errors = open(self.folder / "errors", "w+")
        self.bash = subprocess.Popen(["bash", "--norc"], cwd=self.home, env=environment, stdin=subprocess.PIPE,
                                     stdout=self.errors, stderr=self.errors, start_new_session=True)

    def run(self, command):
        """(status, what it printed to standard output, and to standard error)"""
        done, output, errors = self.folder / "done", self.folder / "output", self.folder / "said"
        done.unlink(missing_ok=True)
        # The status of the command before is what `echo $?` shall show.
        script = f"(exit ${{status:-0}})\n{{ {command}\n}} >{output} 2>{errors} </dev/null\nstatus=$?\necho $status >{done}.tmp; mv {done}.tmp {done}\n"
        self.bash.stdin.write(script.encode())
        self.bash.stdin.flush()
        for _ in range(LIMIT_S * 20):
            if done.exists():
                return int(done.read_text()), output.read_text(errors="replace"), errors.read_text(errors="replace")
            try:
                self.bash.wait(0.05)
                break
            except subprocess.TimeoutExpired:
                pass
        return -1, "", f"no end within {LIMIT_S} s"

    def end(self):
        # A restored program is in a session of its own; what is left of the page's programs names its folder.
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "cwd").startswith(str(self.folder)):
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass
        self.bash.stdin.close()
        self.bash.wait()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def check(page, build):
    """What is wrong with the page, and how many commands were run."""
    todo = list(steps(page))
    if not todo:
        return [], 0
    session = Session(build)
    name, problems = page.relative_to(SOURCE), []
    left_out = {where for where in {step[3] for step in todo} if where and session.run(where)[0] != 0}
    todo = [step for step in todo if step[3] not in left_out]
    for i, (line, command, shown, _) in enumerate(todo):
        status, output, said = session.run(command)
        may_fail = i + 1 < len(todo) and todo[i + 1][1] == "echo $?"
        warns = status == 3 and command.startswith("gpuckpt doctor")
        if status != 0 and not may_fail and not warns:
            problems.append(f"{name}:{line}: `{command}` ended with {status}:\n{output}{said}")
            break
        # A terminal shows both, in an order that depends on how the program buffers.
        if shown and not any(re.fullmatch(pattern(shown), text.strip()) for text in (output + said, said + output)):
            problems.append(f"{name}:{line}: `{command}` printed\n{output}{said}where the page shows\n" + "\n".join(shown))
    session.end()
    return problems, len(todo)


def main():
    build = Path(sys.argv[1]).resolve()
    if not (build / "examples/train_charlm").exists():
        print("skipped: the examples are not built")
        return 77
    pages = [Path(p).resolve() for p in sys.argv[2:]] or [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]
    problems, commands = [], 0
    for page in pages:
        wrong, count = check(page, build)
        problems += wrong
        commands += count
    print("\n".join(problems) or f"{commands} commands of {len(pages)} pages do what the pages say")
    return 1 if problems or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
