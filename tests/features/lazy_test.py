#!/usr/bin/env python3
"""restore --lazy beside the program: lazy_test.py CASE [--build DIR]. What the program itself sees is features_test.py's lazy flavour.

  absent         the program runs while most of its memory is not there, also when `gpuckpt restore` is killed; nothing is lost
  absent_nobody  as user nobody the program runs while most of its memory is not there, and nothing is lost
  pager_killed   without the helper process it would see zeros: it is ended instead, and that is said
  new_ids        where it has new thread ids all is read first, with a warning
"""
import os
import signal
import sys
import time

from features_test import Failure, Run
from one_case import case_options, run_case

DATA_KB = 5 * 16 * 1024  # of memory_moves.c


def snapshot(run):
    process = run.popen([run.build / "tests" / "features" / run.feature], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    done = run.checkpoint(process.pid)
    if done.returncode != 0:
        raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
    run.kill(process)


def resident_kb(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])


def pager_of(front):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)
        except OSError:
            continue
        if fields[0].endswith("(gpuckpt-pager") and int(fields[1].split()[1]) == front:
            return int(pid)
    raise Failure("there is no pager")


def restore_absent(run, delay_ms):
    front, pid = run.restore(1, "--lazy", GPUCKPT_LAZY_DELAY_MS=str(delay_ms))
    if resident_kb(pid) > DATA_KB / 2:
        raise Failure(f"{resident_kb(pid)} kB are there already")
    return front, pid


def absent(run):
    front, pid = restore_absent(run, 60000)
    front.kill()
    front.wait()
    run.release()
    begin = time.monotonic()
    while not run.says("survived"):
        if time.monotonic() - begin > 60 or not os.path.exists(f"/proc/{pid}"):
            raise Failure("did not survive")
        time.sleep(0.02)


def absent_nobody(run):
    front, _ = restore_absent(run, 1000)  # its fork waits until all is there
    run.release()
    run.finish(front)


def pager_killed(run):
    front, pid = run.restore(1, "--lazy", GPUCKPT_LAZY_DELAY_MS="60000")
    os.kill(pager_of(front.pid), signal.SIGKILL)
    if front.wait(30) != 128 + signal.SIGKILL:
        raise Failure(f"ended with {front.returncode}")
    if "the rest of the program's memory cannot be read" not in (run.work / "restore.err").read_text():
        raise Failure("nobody said why")


def new_ids(run):
    front, _ = run.restore(1, "--lazy", "--no-namespaces")
    if "--lazy is not possible here" not in (run.work / "restore.err").read_text():
        raise Failure("no warning")
    run.release()
    run.finish(front)


def main():
    cases = {"absent": absent, "absent_nobody": absent_nobody, "pager_killed": pager_killed, "new_ids": new_ids}
    options = case_options(__doc__, cases)
    if options.case == "absent" and os.getuid() != 0:
        print("skipped: in the namespaces that an ordinary user's restore needs the program ends with the command")
        sys.exit(77)
    user = "nobody" if options.case in ("absent_nobody", "new_ids") else "root"

    def case(run):
        snapshot(run)
        cases[options.case](run)

    run_case(Run("memory_moves", user, options.build), options.case, case)


if __name__ == "__main__":
    main()
