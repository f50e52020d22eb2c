#!/usr/bin/env python3
"""How fast a snapshot's host memory comes back, beside a plain read of the same bytes, in one run.

    bench/host/restore.py BUILD [--mib 1024] [--kinds random,floats,weights,text] [--rounds 5] [--work DIR] [--option=--lazy]

For each kind of memory (restore_fill.cc): a process is snapshotted and killed; then, in turn, a program reads the bytes from
the page cache into fresh memory with as many threads as there are processors (the floor), and the snapshot is restored, also
from the page cache. The digest of the memory is compared after each restore. Ratios are made pair by pair; medians and ranges
are shown, and the processor time of each side, which other programs on the machine disturb less.
Needs about 2 x MIB of disk (or memory, if DIR is in memory) and 3 x MIB of memory.
"""
import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import one_restore
from run import warm_memory


def processor_time(before):
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime


class Kind:
    def __init__(self, o, build, work, kind):
        self.o, self.build, self.work, self.kind = o, build, work, kind
        self.store, self.file = f"{work}/store-{kind}", f"{work}/bytes"
        self.digest, _ = one_restore.snapshot(build, self.store, [f"{build}/bin/bench_restore_fill", str(o.mib), kind, self.file])
        packs = [f"{self.store}/packs/{name}" for name in os.listdir(f"{self.store}/packs")]
        self.stored = sum(map(os.path.getsize, packs))
        subprocess.run(["cat", self.file, *packs], stdout=subprocess.DEVNULL, check=True)  # into the page cache

    def read(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([f"{self.build}/bin/bench_churn", "read", self.file, str(os.cpu_count())], capture_output=True,
                              text=True, check=True)
        return int(done.stdout) / 1e6, processor_time(before)

    def restore(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, digest, _ = one_restore.restore(self.build, self.store, self.work, self.o.option)
        if digest != self.digest:
            sys.exit(f"{self.kind}: the restored memory is not what it was")
        return seconds, processor_time(before)


def shown(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--kinds", default="random,floats,weights,text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--json")
    o = parser.parse_args()
    rows = []
    work = tempfile.mkdtemp(prefix="gpuckpt-bench-", dir=o.work)
    print(f"{o.mib} MiB, {o.rounds} rounds, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print("kind     stored   floor, s            restore, s          restore / floor     CPU: floor  restore")
    try:
        for kind in o.kinds.split(","):
            k = Kind(o, os.path.abspath(o.build), work, kind)
            reads, restores = [], []
            for _ in range(o.rounds):
                warm_memory(1.1 * o.mib)
                reads.append(k.read())
                warm_memory(1.1 * o.mib)
                restores.append(k.restore())
            ratio = [b[0] / a[0] for a, b in zip(reads, restores)]
            cpu = [statistics.median(x[1] for x in side) for side in (reads, restores)]
            print(f"{kind:8} {k.stored / 2**20 / o.mib * 100:4.0f} %   {shown([x[0] for x in reads]):19} {shown([x[0] for x in restores]):19} "
                  f"{shown(ratio):19} {cpu[0]:10.2f} {cpu[1]:8.2f}", flush=True)
            rows.append({"kind": kind, "stored": k.stored / 2**20 / o.mib, "floor_s": [x[0] for x in reads], "restore_s": [x[0] for x in restores]})
            shutil.rmtree(k.store)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"mib": o.mib, "rows": rows}, f)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
