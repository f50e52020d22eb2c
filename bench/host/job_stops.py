#!/usr/bin/env python3
"""How long a job of many processes that have their memory in common stands for a snapshot, beside one process with as much memory.

    bench/host/job_stops.py BUILD [--mib 4096] [--processes 1,64] [--kinds private,shared] [--rounds 1] [--work DIR] [--json FILE]

A parent writes MIB, its children (family.cc) one page in a hundred of that: of private memory, which fork left in common, or of shared memory (MAP_SHARED). Of each round, kind and number of processes: the stall of the first
snapshot, and of two more, between which little is written. Medians, and the range. Needs about 1.5 x MIB of memory and of disk in DIR, and 2 MiB of page tables
for each GiB of each process.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

from restore import shown
from run import described


def stall_ms(build, store, pid, tag):
    done = subprocess.run([f"{build}/bin/gpuckpt", "checkpoint", str(pid), "--tag", tag], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"checkpoint failed: {done.stderr}")
    return described(build, store, tag)["stats"]["stall_us"] / 1000


def measure(o, build, memory, processes, out):
    work = tempfile.mkdtemp(prefix="gpuckpt-jobs-", dir=o.work)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUCKPT_")}
    env.update(LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=f"{work}/store", GPUCKPT_LOG="error")
    p = subprocess.Popen([f"{build}/bin/bench_family", str(o.mib), str(processes), memory], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        if p.stdout.readline() != "ready\n":
            sys.exit("the program did not start")
        for tag, kind in (("first", "first"), ("second", "next"), ("third", "next")):
            out.setdefault((memory, processes, kind), []).append(stall_ms(build, f"{work}/store", p.pid, tag))
    finally:
        os.killpg(p.pid, 9)
        p.wait()
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--processes", default="1,64")
    parser.add_argument("--kinds", default="private,shared")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--json")
    o = parser.parse_args()
    build, out = os.path.abspath(o.build), {}
    print(f"{o.mib} MiB, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors", flush=True)
    for _ in range(o.rounds):
        for memory in o.kinds.split(","):
            for processes in o.processes.split(","):
                measure(o, build, memory, int(processes), out)
    print("memory   processes  snapshot  stall, ms")
    for (memory, processes, kind), stalls in out.items():
        print(f"{memory:7}  {processes:9}  {kind:8}  {shown(stalls, 1)}")
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"mib": o.mib, "rows": [{"memory": memory, "processes": processes, "kind": kind, "stall_ms": stalls} for (memory, processes, kind), stalls in out.items()]}, f)


if __name__ == "__main__":
    main()
