#!/usr/bin/env python3
"""verify --replay says of a program that computes the same twice that it does, and of another where it does not; the files it
writes stay as they are: replay_test.py BUILD_DIR PROGRAM."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "e2e"))
import harness  # noqa: E402


def replay(tools, program, kind, user, expected):
    with harness.Session(tools, 3, user=user) as session:
        process = session.run([program, 100000, 5, kind])
        session.wait_lines(5, process)
        snapshot = session.snapshot(process)
        session.wait_lines(len(session.lines()) + 3, process)
        session.kill(process)
        names = "written", "mapped", "both"
        written, lines = [(session.work / name).read_bytes() for name in names], session.lines()
        done = session.cli("verify", f"{session.store}@{snapshot}", "--replay", "--seconds", "300ms", "--json", timeout=90, check=False)
        if done.returncode != expected:
            raise harness.Failure(f"exit {done.returncode}: {done.stdout} {done.stderr}")
        if [(session.work / name).read_bytes() for name in names] != written or session.lines() != lines:
            raise harness.Failure("the program's files were changed")
        return json.loads(done.stdout)


def same(tools, program, user=None):
    found = replay(tools, program, "same", user, 0)
    if not found["ok"] or found["steps"] < 10:
        raise harness.Failure(found)


def differs(tools, program):
    found = replay(tools, program, "clock", None, 3)
    first = found["first"]
    if found["ok"] or "1048576 bytes" not in first["in"] or not any("allocate_for_the_clock" in f for f in first["from"]):
        raise harness.Failure(found)


def main():
    tools, program = harness.Tools(harness.find_build(sys.argv[1])), Path(sys.argv[2])
    return harness.run_cases({"same": lambda: same(tools, program), "same, as nobody": lambda: same(tools, program, harness.NOBODY),
                              "differs": lambda: differs(tools, program)})


if __name__ == "__main__":
    sys.exit(main())
