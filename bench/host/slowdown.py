#!/usr/bin/env python3
"""How much slower a program works while a snapshot of it is made: before its stop, while memory is sent, and after it.

    bench/host/slowdown.py BUILD [--mib 2048] [--rate 40] [--rounds 3] [--work DIR] [--json FILE]

The program is work.cc: MIB of memory in 4 KiB pages, and threads that compute and write RATE MiB of random pages a second. It is run with
one thread less than there are processors, and with one for each: then the library and the writer can only work instead of it. From the
call of `gpuckpt checkpoint` until the snapshot is durable the pieces of work are counted, and compared with those of two seconds before
and two after it. Shown, for a first snapshot and for the next one, for which the program has written four seconds longer: that time, how
much less was done in it, and how much of the work is lost when such a snapshot is taken every ten minutes. Medians, and the range. Needs about 2 x MIB of memory and 2 x MIB of disk in DIR.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from restore import shown

TEN_MINUTES = 600
COMPARED = 2  # seconds before and after a snapshot


class Program:
    def __init__(self, build, store, mib, threads, rate):
        env = {k: v for k, v in os.environ.items() if not k.startswith("GPUCKPT_")}
        env.update(LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=store, GPUCKPT_LOG="warn")
        self.p = subprocess.Popen([f"{build}/bin/bench_work", str(mib), str(threads), str(rate)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.p.stdout.readline() != "ready\n":
            sys.exit("the program did not start")

    def pieces(self):
        self.p.stdin.write("\n")
        self.p.stdin.flush()
        return int(self.p.stdout.readline()), time.monotonic()

    def rate_while(self, body):
        (before, begin), _, (after, end) = self.pieces(), body(), self.pieces()
        return (after - before) / (end - begin), end - begin


def snapshot(build, program):
    done = subprocess.run([f"{build}/bin/gpuckpt", "checkpoint", str(program.p.pid)], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"checkpoint failed: {done.stderr}")


def measure(o, build, threads, out):
    work = tempfile.mkdtemp(prefix="gpuckpt-slowdown-", dir=o.work)
    program = Program(build, f"{work}/store", o.mib, threads, o.rate)
    try:
        for kind in ("first", "next"):
            rates = [program.rate_while(lambda: time.sleep(COMPARED))[0]]
            during, seconds = program.rate_while(lambda: snapshot(build, program))
            rates.append(program.rate_while(lambda: time.sleep(COMPARED))[0])
            lost = 1 - during / (sum(rates) / 2)
            out.setdefault((threads, kind), []).append((seconds, lost * 100, lost * seconds / TEN_MINUTES * 100))
    finally:
        program.p.kill()
        program.p.wait()
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=40, help="MiB written in a second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--json")
    o = parser.parse_args()
    build, out = os.path.abspath(o.build), {}
    processors = len(os.sched_getaffinity(0))
    print(f"{o.mib} MiB, {o.rate:g} MiB/s, {processors} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    for _ in range(o.rounds):
        for threads in {max(1, processors - 1), processors}:
            measure(o, build, threads, out)
    print(f"{'threads':>7}  {'snapshot':12} {'until durable, s':22} {'less work in it, %':22} of ten minutes, %")
    for (threads, kind), runs in sorted(out.items()):
        seconds, lost, of_ten_minutes = zip(*runs)
        print(f"{threads:7}  {kind:12} {shown(seconds):22} {shown(lost, 1):22} {shown(of_ten_minutes, 3)}")
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"mib": o.mib, "processors": processors,
                       "rows": [{"threads": threads, "kind": kind, "seconds": [r[0] for r in runs], "lost_percent": [r[1] for r in runs]} for (threads, kind), runs in sorted(out.items())]}, f)


if __name__ == "__main__":
    main()
