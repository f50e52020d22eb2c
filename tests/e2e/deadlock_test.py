#!/usr/bin/env python3
"""Programs whose threads, callbacks and streams wait for each other: a snapshot is taken or given up with the stream named,
and what is on it, in bounded time, and the program ends as ever: deadlock_test.py BUILD_DIR [PROGRAM...]."""
import os
import re
import sys
import time

import harness
from harness import Failure, Session

# program, arguments, what a snapshot that is given up says of the stream, how many of the first must be given up
PROGRAMS = [("callback_mutex", [], "cu(LaunchHostFunc|MemsetD8Async)", 0),
            ("crossing_streams", [], "cuStream(Wait|Write)Value32_v2", 0),
            ("long_synchronise", ["6"], "cuLaunchHostFunc", 1),
            ("spinning_kernel", [], "last kernel spin_until_told", 1)]


def closed_input(process):
    """Is standard input closed in a process that goes on? (One that ends loses its descriptors before it can be waited for.)"""
    deadline = time.monotonic() + 5
    while process.poll() is None and not os.path.exists(f"/proc/{process.pid}/fd/0"):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


def attempt(tools, name, arguments, on_stream, surely_given_up):
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
                if given_up < surely_given_up:
                    raise Failure(f"{name}: a snapshot was taken of a stream that cannot be idle")
                taken += 1
            elif done.returncode == 15:
                given_up += 1
                if not re.search(f"stream (0x[0-9a-f]+ )?is busy, .*{on_stream}", done.stderr):
                    raise Failure(f"{name}: given up without naming what stood in the way: {done.stderr.strip()}")
            elif "ended" in done.stderr:
                session.finish(process, 10)
            else:
                raise Failure(f"{name}: exit {done.returncode}: {done.stderr.strip()}")
            if closed_input(process):
                raise Failure(f"{name}: its standard input was closed")
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
    programs = {program[0]: program for program in PROGRAMS}
    for name in sys.argv[2:] or programs:
        try:
            attempt(tools, *programs[name])
        except Failure as failure:
            print(f"FAILED {failure}", flush=True)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
