#!/usr/bin/env python3
"""Memory and time of the restore of a family of processes, with the pages that fork left in common back in common, and without.

    bench/host/family.py BUILD [--mib 512] [--processes 16] [--rounds 3] [--work DIR]

A parent writes MIB, its children (family.cc) one page in a hundred of that; the job is snapshotted and killed. Then it is restored in
turn as always and with GPUCKPT_COMMON_PAGES=0, from the page cache. The digest of all memory is compared each time. Shown: the sum
of the processes' proportional set sizes, which is what the machine needs, and the time until all run; medians and ranges.
"""
import argparse
import os
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import one_restore
from one_restore import read_file
from restore import shown


def processes_below(pid):
    found = [pid]
    for parent in found:
        for task in os.listdir(f"/proc/{parent}/task"):
            found += [int(child) for child in read_file(f"/proc/{parent}/task/{task}/children").split()]
    return found


def pss_mib(pid):
    lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def memory_of(pid):
    return sum(map(pss_mib, processes_below(pid)))


class Family:
    def __init__(self, o, work):
        self.build, self.work, self.store = os.path.abspath(o.build), work, f"{work}/store"
        program = [f"{self.build}/bin/bench_family", str(o.mib), str(o.processes)]
        self.digest, self.before = one_restore.snapshot(self.build, self.store, program, memory_of)

    def restore(self, **env):
        seconds, digest, memory = one_restore.restore(self.build, self.store, self.work, when_running=memory_of, **env)
        if digest != self.digest:
            sys.exit("the restored memory is not what it was")
        return memory, seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", default="/var/tmp")
    o = parser.parse_args()
    work = tempfile.mkdtemp(prefix="gpuckpt-bench-", dir=o.work)
    try:
        family = Family(o, work)
        print(f"{o.processes} processes, {o.mib} MiB in common, {o.rounds} rounds, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        common, alone = [], []
        for _ in range(o.rounds):
            common.append(family.restore())
            alone.append(family.restore(GPUCKPT_COMMON_PAGES="0"))
        print("                  memory, MiB               restore, s")
        print(f"before            {family.before:.0f}")
        for name, side in (("in common", common), ("each by itself", alone)):
            print(f"{name:17} {shown([m for m, s in side], 0):25} {shown([s for m, s in side])}")
        print(f"ratio             {shown([a[0] / b[0] for a, b in zip(common, alone)]):25} {shown([a[1] / b[1] for a, b in zip(common, alone)])}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
