#!/usr/bin/env python3
"""A signal that comes while the program is stopped ends the call that it waits in: signalled_test.py CASE [--build DIR].

  poll, read  a call that no handler restarts, and one that only handlers with SA_RESTART do
  threads     of several threads the first one gets the signal of the process, and its call ends
  restored    the same in the restored process, which the signal has waited for
  late        our own signal ends no call, also when it comes after the stop was given up
"""
import subprocess

from features_test import Failure, Run
from one_case import case_options, run_case

CASES = ("poll", "read", "threads", "restored", "late")


def case_of(kind):
    def case(run):
        process = run.popen([run.build / "tests" / "features" / "support" / "signalled", "poll" if kind == "restored" else kind], "out", "err",
                            LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"), GPUCKPT_COPY="stop")
        run.until(lambda: run.says("ready"), process, "before it was ready")
        for i in range(4):
            last = ["--stop"] if kind == "restored" and i == 3 else []
            done = run.checkpoint(process.pid, *last)
            if done.returncode != 0:
                raise Failure(f"checkpoint: exit {done.returncode}, {done.stderr}")
        if kind == "restored":
            process.wait(30)
            process, _ = run.restore(1)
        run.release()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            raise Failure("it waits in its call") from None
        if process.returncode != 0 or not run.says("survived"):
            raise Failure(f"it ended with {process.returncode}")
    return case


def late(run):
    process = run.popen([run.build / "tests" / "features" / "support" / "asked_late"], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    for _ in range(3):
        done = run.checkpoint(process.pid)
        if done.returncode not in (0, 14):
            raise Failure(f"checkpoint: exit {done.returncode}, {done.stderr}")
    run.release()
    run.finish(process)


def main():
    options = case_options(__doc__, CASES)
    run_case(Run("signalled", "root", options.build), "signalled", late if options.case == "late" else case_of(options.case))


if __name__ == "__main__":
    main()
