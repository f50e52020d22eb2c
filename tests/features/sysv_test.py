#!/usr/bin/env python3
"""A System V segment that is gone at the restore (a new machine, ipcrm) is made anew: sysv_test.py [--build DIR]

It has its old number, which the program keeps, and stays when nobody has it attached. Only root can ask the kernel for a
number.
"""
import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from features_test import SOURCE, Failure, Run


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=SOURCE.parents[1] / "build")
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("ipcrm") or not os.access("/proc/sys/kernel/shm_next_id", os.W_OK):
        print("skipped: only root can ask for the number of a segment")
        sys.exit(77)
    run = Run("sysv_gone", "root", options.build.resolve())
    try:
        go(run)
        print("ok")
    except Failure as failure:
        text = "".join((run.work / n).read_text(errors="replace") for n in ("out", "err", "restore.err") if (run.work / n).exists())
        sys.exit(f"FAILED: {failure}\n{text}")
    finally:
        for process in run.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(run.work, ignore_errors=True)


if __name__ == "__main__":
    main()
