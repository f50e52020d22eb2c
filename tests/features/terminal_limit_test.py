#!/usr/bin/env python3
"""A restore that needs pseudo terminals where there may be three: terminal_limit_test.py CASE [--build DIR]

  moment  others have them all, and give one back within a second
  gone    others keep them: the restore says what there is too little of
"""
import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from features_test import Failure, Run

INSIDE = "GPUCKPT_TEST_INSIDE"
MOST = 3


def take_all():
    held = []
    while True:
        try:
            held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return held


def go(run, case):
    process = run.popen([run.build / "tests" / "features" / "terminal_controlling"], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    done = run.checkpoint(process.pid)
    if done.returncode not in (0, 3):
        raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
    run.kill(process)
    time.sleep(0.2)
    held = take_all()
    if len(held) != MOST:
        raise Failure(f"{len(held)} pseudo terminals instead of {MOST}")
    (run.work / "was_restored").touch()
    restore = run.popen([run.build / "bin" / "gpuckpt", "restore", f"{run.work / 'store'}@latest", "--pid-file", run.work / "pid"],
                        "restore", "restore.err")
    if case == "moment":
        time.sleep(1)
        for fd in held:
            os.close(fd)
        run.until(lambda: (run.work / "pid").exists(), restore, "instead of being restored")
        run.release()
        return run.finish(restore)
    status = restore.wait(40)
    text = (run.work / "restore.err").read_text()
    if status != 125 or "kernel.pty.max" not in text:
        raise Failure(f"the restore ended with {status}: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["moment", "gone"])
    parser.add_argument("--build", type=Path, default=Run.SOURCE.parents[1] / "build")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        if os.geteuid() != 0 or not shutil.which("unshare"):
            print("skipped: only root can mount a devpts of its own")
            sys.exit(77)
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    for command in (["mount", "-t", "devpts", "-o", f"newinstance,max={MOST},ptmxmode=0666", "devpts", "/dev/pts"],
                    ["mount", "--bind", "/dev/pts/ptmx", "/dev/ptmx"]):
        if subprocess.run(command).returncode != 0:
            print("skipped: no devpts can be mounted here")
            sys.exit(77)
    run = Run("terminal_limit", "root", options.build.resolve())
    try:
        go(run, options.case)
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
