#!/usr/bin/env python3
"""A wait with a relative time-out ends although snapshots come more often: time_outs_test.py CASE [--build DIR].

  go_on     while the program goes on
  restored  what was left at the snapshot is what the restored process waits
"""
import subprocess
import time

from features_test import Failure, Run
from one_case import case_options, run_case

CASES = ("go_on", "restored")
SECONDS = 2.0
# The first snapshot in a wait cannot tell how much of it is over: the time begins then.
MOST = 2 * SECONDS


def snapshot(run, process, *options):
    """Whether there was one: the program may end at that moment, and be no child yet that can be waited for."""
    done = run.checkpoint(process.pid, *options)
    if done.returncode == 0:
        return True
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        raise Failure(f"checkpoint: exit {done.returncode}, {done.stderr}") from None
    return False


def end_of(run, process, limit):
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        raise Failure("it waits for longer than it asked to") from None
    if process.returncode != 0 or not run.says("survived"):
        raise Failure(f"it ended with {process.returncode}: {(run.work / 'out').read_text()}")


def start(run):
    process = run.popen([run.build / "tests" / "features" / "support" / "time_outs", str(SECONDS)], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    return process


def go_on(run):
    process = start(run)
    deadline = time.monotonic() + 5 * MOST  # a busy machine
    snapshots = 0
    while process.poll() is None and time.monotonic() < deadline:
        snapshots += snapshot(run, process)
        time.sleep(0.1)
    end_of(run, process, 0.1)
    if snapshots < 4:
        raise Failure(f"only {snapshots} snapshots were taken")


def restored(run):
    process = start(run)
    began = time.monotonic()
    snapshot(run, process)
    while time.monotonic() < began + 0.8 * SECONDS:
        snapshot(run, process)
    snapshot(run, process, "--stop")
    process.wait(30)
    process, _ = run.restore(1)
    began = time.monotonic()
    end_of(run, process, 5 * MOST)
    # 0.2 of the time were left, and the thread that waits twice had half of it more.
    if time.monotonic() - began > SECONDS:
        raise Failure(f"the restored process waited {time.monotonic() - began:.1f} s")


def main():
    options = case_options(__doc__, CASES)
    run_case(Run("time_outs", "root", options.build), "time_outs", {"go_on": go_on, "restored": restored}[options.case])


if __name__ == "__main__":
    main()
