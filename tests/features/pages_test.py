#!/usr/bin/env python3
"""How memory gets into a snapshot, by options: pages_test.py CASE [--build DIR].

  copy_limit      a program that writes faster than its pages are stored is held up, not its machine
  self_contained  a program and a library that are gone afterwards: the snapshot has what was mapped of them
"""
import argparse
import os
import shutil
import sys
from pathlib import Path

from features_test import SOURCE, Failure, Run

WRITER = """
import os, time
block = bytearray(os.urandom(1 << 20) * 192)
print("ready", flush=True)
while not os.path.exists("go_on"):
    for i in range(0, len(block), 4096): block[i] = (block[i] + 1) % 256
print("survived", flush=True)
"""


def start(run, command, **env):
    process = run.popen(command, "out", "err", LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"), **env)
    run.until(lambda: run.says("ready"), process, "before it was ready")
    return process


def checkpoint(run, pid, *more):
    done = run.checkpoint(pid, *more)
    if done.returncode != 0:
        raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")


def copy_limit(run):
    process = start(run, [sys.executable, "-c", WRITER], GPUCKPT_COPY="clone", GPUCKPT_COPY_LIMIT="8M", GPUCKPT_LOG="warn")
    checkpoint(run, process.pid)
    run.release()
    run.finish(process)
    if "it was held up for" not in (run.work / "err").read_text():
        raise Failure("was not held up")


def self_contained(run):
    program, library = run.work / "program", run.work / "program_library.so"
    shutil.copy(run.build / "tests" / "features" / "thread_dlopen_tls", program)
    shutil.copy(run.build / "tests" / "features" / "thread_dlopen_tls_library.so", library)
    process = start(run, [program])
    checkpoint(run, process.pid, "--self-contained")
    run.kill(process)
    program.unlink()
    library.unlink()
    process, pid = run.restore(1)
    checkpoint(run, pid)
    run.kill(process, pid)
    process, pid = run.restore(2)
    run.release()
    run.finish(process)


def main():
    cases = {"copy_limit": copy_limit, "self_contained": self_contained}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--build", type=Path, default=SOURCE.parents[1] / "build")
    options = parser.parse_args()
    run = Run("memory_moves", "root", options.build.resolve())
    try:
        cases[options.case](run)
        print("ok")
    except Failure as failure:
        text = "".join((run.work / n).read_text(errors="replace") for n in ("out", "err", "restore.err") if (run.work / n).exists())
        sys.exit(f"FAILED {options.case}: {failure}\n{text}")
    finally:
        for process in run.started:
            if process.poll() is None:
                process.kill()
        shutil.rmtree(run.work, ignore_errors=True)


main()
