#!/usr/bin/env python3
"""A program that ends in the middle of a snapshot ends as it would without one, and leaves a whole store from which the last
durable snapshot goes on: midway_test.py BUILD_DIR PROGRAM."""
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "e2e"))
import harness  # noqa: E402


def last_one_goes_on(session, expected):
    """The store is whole, and its youngest snapshot runs to the end."""
    session.cli("verify", session.store)
    snapshots = session.snapshots()
    if not snapshots:
        return
    restored = session.restore(snapshots[-1]["id"])
    status = session.finish(restored, 60)
    if status != 0:
        raise harness.Failure(f"restored, it ended with {status}: {session.errors('restore')}")
    session.compare(expected)


def ends_by_itself(tools, program, seed):
    """exit() and the exit handlers of the driver beside a snapshot, at another moment of it with each seed."""
    command = [program, 20 + seed, 4, "same"]
    expected, _ = harness.reference(tools, command)
    with harness.Session(tools, seed) as session:
        process = session.run(command, options=["--every", "30ms"])
        status = session.finish(process, 60)
        if status != 0:
            raise harness.Failure(f"ended with {status}: {session.errors('out')}")
        session.compare(expected)
        deadline = time.monotonic() + 30  # the writer may still be at work, or make the store
        while session.cli("verify", session.store, check=False).returncode in (10, 11) and time.monotonic() < deadline:
            time.sleep(0.1)
        last_one_goes_on(session, expected)


def is_signalled(tools, program, number, seed):
    command = [program, 400, 5, "same"]  # it must not be done before the signal comes
    expected, _ = harness.reference(tools, command)
    with harness.Session(tools, seed) as session:
        process = session.run(command)
        session.wait_lines(3, process)
        session.snapshot(process)
        os.kill(process.pid, signal.SIGUSR1)
        time.sleep(session.random.random() * 0.08)
        os.kill(process.pid, number)
        status = session.finish(process, 30)
        if status != -number:
            raise harness.Failure(f"ended with {status}, not by signal {number}: {session.errors('out')}")
        session.compare(expected, prefix=True)
        last_one_goes_on(session, expected)


def main():
    tools, program = harness.Tools(harness.find_build(sys.argv[1])), Path(sys.argv[2])
    cases = {f"ends by itself {seed}": lambda seed=seed: ends_by_itself(tools, program, seed) for seed in range(1, 5)}
    for seed, number in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGINT, signal.SIGKILL), 1):
        cases[f"{number.name} {seed}"] = lambda number=number, seed=seed: is_signalled(tools, program, number, seed)
    return harness.run_cases(cases)


if __name__ == "__main__":
    sys.exit(main())
