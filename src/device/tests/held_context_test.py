#!/usr/bin/env python3
"""Contexts come back at identical values, because NVIDIA's runtime knows them past every interposer:
held_context_test.py BUILD_DIR PROGRAM."""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "e2e"))
import harness  # noqa: E402

STEPS = 40


def restored(tools, command, seed, generations, rest):
    """Snapshot, kill, restore, as often as asked; the program itself compares its contexts."""
    with harness.Session(tools, seed) as session:
        process = session.run([*command[:1], STEPS, 15 * rest, *command[1:]])
        session.wait_lines(3, process)
        snapshot = session.snapshot(process)
        session.kill(process)
        for _ in range(generations - 1):
            process = session.restore(snapshot)
            time.sleep(0.05)
            snapshot = session.snapshot(process, pid=process.restored_pid)
            session.kill(process, process.restored_pid)
        process = session.restore(snapshot)
        status = session.finish(process)
        lines = session.lines()
        if status != 0 or len(lines) != STEPS:
            raise harness.Failure(f"ended with {status} after {len(lines)} lines: {lines[-1:]} {session.errors('restore')}")


def refused(tools, command, seed, rest):
    """The driver allocates otherwise after the restore, and a table of the program holds the old value."""
    with harness.Session(tools, seed) as session:
        process = session.run([*command[:1], STEPS, 15 * rest, *command[1:]])
        session.wait_lines(3, process)
        snapshot = session.snapshot(process)
        session.kill(process)
        try:
            process = session.restore(snapshot)
            process.wait(30)
        except harness.Failure as failure:
            if "exit 125" in str(failure) and "cuGetExportTable" in str(failure):
                return
            raise
        raise harness.Failure(f"not refused: exit {process.returncode} {session.errors('restore')}")


def main():
    tools, program = harness.Tools(harness.find_build(sys.argv[1])), Path(sys.argv[2])
    cases = {
        "two generations, same driver": lambda rest: restored(tools, [program, "table"], 1, 3, rest),
        "a driver that shuffles otherwise": lambda rest: restored(tools, [program, "table", "SIMGPU_SEED", "77"], 2, 2, rest),
        "bigger objects, no held contexts": lambda rest: restored(tools, [program, "plain", "SIMGPU_GROW", "64"], 3, 2, rest),
        "bigger objects, held contexts": lambda rest: refused(tools, [program, "table", "SIMGPU_GROW", "64"], 4, rest),
    }
    return harness.run_cases({name: lambda case=case: harness.slower(case) for name, case in cases.items()})


if __name__ == "__main__":
    sys.exit(main())
