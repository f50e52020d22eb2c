#!/usr/bin/env python3
"""Only the first process is killed, as kill -9 does, and a restore follows at once: linger_test.py [--build DIR]

Its child lives on for up to 1.5 s, holds its number and the name of a socket, and removes the socket's folder when it ends. The
second and third restore find the child of the restored program, whose number is in no snapshot.
"""
import argparse
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCE.parent / "e2e"))
import harness  # noqa: E402
from harness import Failure  # noqa: E402

STEPS = 100


def snapshot(session, process):
    for _ in range(50):
        try:
            return session.snapshot(process, "cli")
        except Failure as failure:  # a guest at the door, for a moment
            if "not accepted" not in str(failure):
                raise
    raise Failure("someone waits at the door all the time")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    options = parser.parse_args()
    tools = harness.Tools(harness.find_build(options.build), sim=False)
    expected = [f"step {n} {str(n * 10)[::-1]}" for n in range(1, STEPS + 1)]
    with harness.Session(tools, 1, None) as session:
        process = session.run([sys.executable, SOURCE / "programs" / "linger.py", STEPS, session.work / "room"])
        session.wait_lines(5, process)
        taken = snapshot(session, process)
        session.kill(process)
        for _ in range(2):
            process = session.restore(taken)
            session.wait_lines(len(session.lines()) + 5, process)
            session.kill(process, process.restored_pid)
        process = session.restore(taken)
        if session.finish(process, 60) != 0:
            raise Failure(session.errors("restore"))
        session.compare(expected)
        if "waiting for 1 process of the killed program" not in session.errors("restore"):
            raise Failure("no child was left: " + session.errors("restore"))


if __name__ == "__main__":
    sys.exit(main())
