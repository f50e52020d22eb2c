#!/usr/bin/env python3
"""The time between a snapshot and its restore does not pass for the program: clocks_test.py CASE [--build DIR]

  waited   CLOCK_MONOTONIC and CLOCK_BOOTTIME go on where they stopped; a timeout that would have ended meanwhile has not
  twice    the same when the restored program is snapshotted, killed and restored again
  started  the machine has been started again in between

As root, where root tests, and as an ordinary user (`started` as root only).
"""
import os
import sys
import time

from features_test import Failure, Run
from one_case import case_options, run_case

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable  # that every user may run
AWAY = 3  # seconds between a kill and a restore

# A thread waits for an event with a timeout, as those do that wait for another process's message.
PROGRAM = f"""
import os, threading, time
event, ended = threading.Event(), []
waits = threading.Thread(target=lambda: ended.append(event.wait({AWAY} * 10)))
waits.start()
clocks = time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME
began = [time.clock_gettime(clock) for clock in clocks]
print("ready", flush=True)
while not os.path.exists("go_on"):
    time.sleep(0.02)
print("passed", *(time.clock_gettime(clock) - a for clock, a in zip(clocks, began)), flush=True)
event.set()
waits.join()
print("survived" if ended == [True] else "its wait was over", flush=True)
"""


def passed(run):
    """What has passed for the program by its two clocks."""
    line = next(line for line in (run.work / "out").read_text().splitlines() if line.startswith("passed"))
    return [float(word) for word in line.split()[1:]]


def away(run, times):
    """Kills the program after a snapshot and restores it a while later, so often; all of that time must not have passed for it."""
    began = time.monotonic()
    process = run.popen([PYTHON, "-c", PROGRAM], "out", "err", LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    pid, slept = process.pid, 0
    for number in range(1, times + 1):
        done = run.checkpoint(pid)
        if done.returncode != 0:
            raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
        run.kill(process, pid)
        before = time.monotonic()
        time.sleep(AWAY)
        slept += time.monotonic() - before
        process, pid = run.restore(number)
    run.release()
    run.finish(process)
    most = time.monotonic() - began - slept
    if not all(0 <= seconds <= most for seconds in passed(run)):
        raise Failure(f"{passed(run)} s have passed for it, of at most {most:.1f}; it was away for {slept:.1f}")


def waited(run):
    away(run, 1)


def twice(run):
    away(run, 2)


def started(run):
    other = run.work / "boot_id"
    other.write_text("00000000-0000-4000-8000-000000000000\n")
    run.wrapper = ["unshare", "--mount", "sh", "-c", f"mount --bind {other} /proc/sys/kernel/random/boot_id && exec \"$@\"", "sh"]
    away(run, 1)


class OnAnotherStart(Run):
    """Restores run by `wrapper`."""
    wrapper = []

    def restore(self, number, *more, **env):
        self.around = self.wrapper
        try:
            return super().restore(number, *more, **env)
        finally:
            self.around = []

    around = []

    def wrapped(self, command):
        return [*self.around, *super().wrapped(command)]


CASES = {case.__name__: case for case in (waited, twice, started)}


def main():
    options = case_options(__doc__, CASES)
    root = os.geteuid() == 0
    if options.case == "started" and not root:
        print("skipped: only root can test this")
        sys.exit(77)
    # (To one who is not root, "root" is himself.)
    for flavour in ["root", "nobody"] if root and options.case != "started" else ["root"]:
        name = f"clocks_{options.case}"
        run_case(OnAnotherStart(name, flavour, options.build), f"{name} ({flavour})", CASES[options.case])


if __name__ == "__main__":
    main()
