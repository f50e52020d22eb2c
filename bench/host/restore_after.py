#!/usr/bin/env python3
"""A restore right after its snapshot, with the page cache as the snapshot left it: written for a restore, beside the default.

    bench/host/restore_after.py BUILD [--mib 4096] [--kinds random,floats] [--rounds 5] [--work DIR]

In turn with each purpose (`--for`), each time in a new store: a process (restore_fill.cc) is snapshotted, killed and restored at once; the
digests of its memory are compared. Shown are the medians (ranges) of the seconds until the snapshot is durable and of those of the
restore. Needs about MIB of disk in DIR and 2 x MIB of memory.
"""
import argparse
import glob
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import one_restore
from restore import shown
from run import warm_memory

PURPOSES = ("balanced", "restore")


def cycle(o, build, work, kind, purpose):
    """Seconds until the snapshot is durable, and of the restore."""
    store = f"{work}/store"
    os.environ["GPUCKPT_FOR"] = purpose
    warm_memory(2.2 * o.mib)
    digest, began = one_restore.snapshot(build, store, [f"{build}/bin/bench_restore_fill", str(o.mib), kind, "small"], lambda pid: time.time())
    durable = max(os.path.getmtime(path) for path in glob.glob(f"{store}/snapshots/*")) - began
    seconds, restored, _ = one_restore.restore(build, store, work)
    if restored != digest:
        sys.exit(f"{kind}: the restored memory is not what it was")
    shutil.rmtree(store)
    return durable, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--kinds", default="random,floats")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/var/tmp")
    o = parser.parse_args()
    work = tempfile.mkdtemp(prefix="gpuckpt-bench-", dir=o.work)
    print(f"{o.mib} MiB, {o.rounds} rounds, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"{'kind':8} {'for':9} {'durable, s':20} {'restore, s':20}")
    try:
        for kind in o.kinds.split(","):
            rounds = [{purpose: cycle(o, os.path.abspath(o.build), work, kind, purpose) for purpose in PURPOSES} for _ in range(o.rounds)]
            for purpose in PURPOSES:
                durable, restore = zip(*(r[purpose] for r in rounds))
                print(f"{kind:8} {purpose:9} {shown(durable):20} {shown(restore):20}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
