#!/usr/bin/env python3
"""How memory gets into a snapshot, by options: pages_test.py CASE [--build DIR].

  copy_limit      a program that writes faster than its pages are stored is held up, not its machine
  sent_early      the first snapshot of a large program that goes on writing: most of it is sent before the stop, and every page is of one moment
  outrun          the same of one that writes as fast as it can: given up before much was sent for nothing
  precopy_off     the same with GPUCKPT_PRECOPY=off: nothing is sent before the stop
  common          pages that a program has in common with its children: to read them for a snapshot makes no copies of them
  self_contained  a program and a library that are gone afterwards: the snapshot has what was mapped of them
"""
import json
import os
import shutil
import subprocess
import sys

from features_test import Failure, Run
from one_case import case_options, run_case

WRITER = """
import os, time
block = bytearray(os.urandom(1 << 20) * 192)
print("ready", flush=True)
while not os.path.exists("go_on"):
    for i in range(0, len(block), 4096): block[i] = (block[i] + 1) % 256
print("survived", flush=True)
"""

# Writes its pages in turn: at each moment all up to one have the number of this turn, the others that of the last.
IN_TURN = """
import mmap, os, sys, time
pages, pause = 320 << 8, float(sys.argv[1])
block = mmap.mmap(-1, pages << 12, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(320): block[i << 20:(i + 1) << 20] = bytes([0]) + b"x" * ((1 << 20) - 1)
turn, last = 1, pages - 1
for i in range(pages): block[i << 12] = turn
print("ready", flush=True)
while not os.path.exists("go_on"):
    turn = turn % 255 + 1
    for last in range(pages):
        block[last << 12] = turn
        if last % 512 == 0:
            if pause: time.sleep(pause)
            if os.path.exists("go_on"): break
before = (turn - 2) % 255 + 1
wrong = [i for i in range(pages) if block[i << 12] != (turn if i <= last else before)]
print("survived" if not wrong else f"{len(wrong)} pages are of another moment, {wrong[:5]}", flush=True)
"""


# Its pages are in common with two children, before the first snapshot; before the second they are written and in common with two more.
IN_COMMON = """
import mmap, os, time
block = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
block.madvise(mmap.MADV_NOHUGEPAGE)
def fill(value):
    for i in range(0, len(block), 4096): block[i] = value
def fork():
    pid = os.fork()
    if pid == 0:
        while not os.path.exists("go_on"): time.sleep(0.01)
        os._exit(0)
    return pid
fill(1)
first = [fork(), fork()]
print("ready", flush=True)
while not os.path.exists("write"): time.sleep(0.01)
fill(2)
second = [fork(), fork()]
print("written", flush=True)
while not os.path.exists("go_on"): time.sleep(0.01)
for pid in first + second: os.waitpid(pid, 0)
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


def in_turn(run, pause, **env):
    """Its statistics."""
    process = start(run, [sys.executable, "-c", IN_TURN, pause], GPUCKPT_LOG="debug", **env)
    checkpoint(run, process.pid)
    run.kill(process)
    shown = subprocess.run([run.build / "bin" / "gpuckpt", "inspect", f"{run.work / 'store'}@latest", "--json"], capture_output=True, text=True, check=True)
    meta = json.loads(shown.stdout)
    process, pid = run.restore(1)
    run.release()
    run.finish(process)
    return meta.get("meta", meta)["stats"]


def one_of_ten(run, pause, right):
    """Which gives up first, the program or the one that copies it, depends on who has the processors: one of ten tries has to be right."""
    for _ in range(10):
        stats = in_turn(run, pause)
        if stats["track"] != "uffd" or right(stats):
            return
        shutil.rmtree(run.work / "store")
        for name in ("go_on", "out", "pid1"):
            (run.work / name).unlink()
    raise Failure(f"{stats['early_bytes'] >> 20} of 320 MiB were sent before the stop, and then: {stats['way']}")


def sent_early(run):
    one_of_ten(run, "0.05", lambda stats: stats["early_bytes"] >= 320 << 20)


def outrun(run):
    # An eighth of it shows that a round gains nothing.
    one_of_ten(run, "0", lambda stats: stats["way"] == "clone" and stats["early_bytes"] <= 200 << 20)


def precopy_off(run):
    stats = in_turn(run, "0.05", GPUCKPT_PRECOPY="off")
    if stats["early_bytes"]:
        raise Failure(f"{stats['early_bytes']} bytes were sent before the stop")


def own_mib(pid):
    """Of its memory, its share of what it has in common with others included."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith("Pss:"))


def common(run):
    process = start(run, [sys.executable, "-c", IN_COMMON], GPUCKPT_COPY="stream")
    for step in ("ready", "written"):
        run.until(lambda: run.says(step), process, f"before it had said {step}")
        before = own_mib(process.pid)
        checkpoint(run, process.pid)
        after = own_mib(process.pid)
        if before > 50 or after > before + 8:
            raise Failure(f"{step}: had {before} MiB, and has {after} MiB after a snapshot")
        (run.work / "write").touch()
    run.release()
    run.finish(process)


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
    cases = {f.__name__: f for f in (copy_limit, sent_early, outrun, precopy_off, common, self_contained)}
    options = case_options(__doc__, cases)
    run_case(Run("memory_moves", "root", options.build), options.case, cases[options.case])


if __name__ == "__main__":
    main()
