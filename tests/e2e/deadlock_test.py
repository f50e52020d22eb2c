#!/usr/bin/env python3
"""Programs whose threads, callbacks and streams wait for each other: a snapshot is taken or given up with the stream or the
waiting thread named, in bounded time, and the program ends as ever: deadlock_test.py BUILD_DIR."""
import sys
import time

import harness
from harness import Failure, Session

# program, arguments, whether a snapshot may be given up
PROGRAMS = [("callback_mutex", [], True), ("crossing_streams", [], True), ("long_synchronise", ["6"], True)]


def attempt(tools, name, arguments, may_give_up):
    command = [tools.build / "tests" / "programs" / name, *arguments]
    expected, _ = harness.reference(tools, command)
    with Session(tools, 1) as session:
        process = session.run(command)
        session.wait_lines(3, process)
        taken = given_up = 0
        while process.poll() is None and taken + given_up < 4:
            begin = time.monotonic()
            done = session.cli("checkpoint", process.pid, "--timeout", "2s", check=False, timeout=40)
            seconds = time.monotonic() - begin
            if done.returncode == 0:
                taken += 1
            elif done.returncode == 15 and may_give_up:
                given_up += 1
                if "stream" not in done.stderr and "is inside cu" not in done.stderr:
                    raise Failure(f"{name}: given up without naming who stood in the way: {done.stderr.strip()}")
            elif "ended" in done.stderr:
                session.finish(process, 10)
            else:
                raise Failure(f"{name}: exit {done.returncode}: {done.stderr.strip()}")
            if seconds > 20:
                raise Failure(f"{name}: a snapshot with --timeout 2s took {seconds:.0f} s")
        if session.finish(process, 60) != 0:
            raise Failure(f"{name}: ended with {process.returncode}: {session.errors('out')}")
        session.compare(expected)
        for snapshot in [s["id"] for s in session.snapshots()][-1:]:
            restored = session.restore(snapshot)
            if session.finish(restored, 60) != 0:
                raise Failure(f"{name}: restored, it ended with {restored.returncode}: {session.errors('restore')}")
            session.compare(expected)
        if taken + given_up == 0:
            raise Failure(f"{name}: ended before any snapshot was tried")
        print(f"ok {name}: {taken} snapshots taken, {given_up} given up in time", flush=True)


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    failures = 0
    for program in PROGRAMS:
        try:
            attempt(tools, *program)
        except Failure as failure:
            print(f"FAILED {failure}", flush=True)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
