#!/usr/bin/env python3
"""A System V segment that is gone at the restore (a new machine, ipcrm) is made anew: sysv_test.py [--build DIR]

It has its old number, which the program keeps, and stays when nobody has it attached. Only root can ask the kernel for a
number.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

from features_test import Failure, Run
from one_case import case_options, run_case


def segments():
    """number -> the process that made it."""
    lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {int(fields[1]): int(fields[4]) for fields in lines}


def go(run):
    process = run.popen([run.build / "tests" / "features" / "memory_sysv_zero"], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    number = next(n for n, maker in segments().items() if maker == process.pid)
    done = run.checkpoint(process.pid)
    if done.returncode != 0:
        raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
    run.kill(process)
    subprocess.run(["ipcrm", "-m", str(number)], check=True)
    process, _ = run.restore(1)
    if number not in segments():
        raise Failure(f"segment {number} is not there: {segments()}")
    run.release()
    run.finish(process)


def main():
    options = case_options(__doc__)
    if os.geteuid() != 0 or not shutil.which("ipcrm") or not os.access("/proc/sys/kernel/shm_next_id", os.W_OK):
        print("skipped: only root can ask for the number of a segment")
        sys.exit(77)
    run_case(Run("sysv_gone", "root", options.build), "sysv_gone", go)


if __name__ == "__main__":
    main()
