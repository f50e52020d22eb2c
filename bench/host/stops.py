#!/usr/bin/env python3
"""How long a program stands for a snapshot of its host memory, with and without memory that is copied before the stop, in turn.

    bench/host/stops.py BUILD [--gib 1,4] [--before on,off] [--first-only] [--rounds 3] [--rate 40] [--work DIR]

The program is churn.cc: half compressible memory in 4 KiB pages, eight threads that write RATE MiB a second in random pages, and one
that spins on the clock. Of each round: the first snapshot; one after about a quarter of the memory was written; one after 1 % was. The
baseline is GPUCKPT_PRECOPY=off. "Not out of turn" is the longest gap without the time in which the spinning thread was ready and other
programs had the processors; "gap without" is the longest gap in as long a time without a snapshot. Medians, and the range. Needs about 2 x GIB of memory and 2 x GIB of disk in DIR.
"""
import argparse
import json
import os
import shutil
import statistics
import tempfile
import time

from run import Churn, checkpoint


def measure(o, build, gib, precopy, out):
    work = tempfile.mkdtemp(prefix="gpuckpt-stops-", dir=o.work)
    store = f"{work}/store"
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUCKPT_")}
    env.update(LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=store, GPUCKPT_LEVEL="1", GPUCKPT_LOG=os.environ.get("GPUCKPT_LOG", "warn"), GPUCKPT_PRECOPY=precopy)
    percent = o.rate / (gib * 1024) * 100
    churn = Churn(build, gib, env, percent=str(percent))
    try:
        def take(kind):
            r = checkpoint(build, churn, store, kind.replace(" ", "-").replace("%", "p"))
            churn.ask("reset")
            time.sleep(r["total"])
            quiet = churn.ask("gap")[0]
            out.setdefault((gib, kind, precopy), []).append((r["stats"]["stall_us"] / 1000, r["gap"] / 1000, r["held"] / 1000, r["total"], quiet / 1000, r["stats"].get("way"), r["stats"].get("early_bytes", 0) >> 20))

        cpu, pages = churn.ask("cpu 1000")
        out.setdefault((gib, "us of a thread for each page it writes", precopy), []).append(cpu / max(pages, 1))
        take("first")
        if o.first_only:
            return
        churn.ask("rate 40")
        time.sleep(0.75)
        churn.ask(f"rate {percent}")
        take("a quarter written")
        time.sleep(max(0.0, gib * 10.24 / o.rate))
        take("1 % written")
    finally:
        churn.end()
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--gib", default="1,4")
    parser.add_argument("--before", default="on,off", help="values of GPUCKPT_PRECOPY")
    parser.add_argument("--first-only", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=40, help="MiB written in a second")
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--json")
    o = parser.parse_args()
    build, out = os.path.abspath(o.build), {}
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    for _ in range(o.rounds):
        for gib in [float(g) for g in o.gib.split(",")]:
            for precopy in o.before.split(","):
                measure(o, build, gib, precopy, out)
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"{'GiB':>5} {'snapshot':<20} {'before':<6} {'stall ms':>22} {'gap ms':>22} {'not out of turn ms':>22} {'gap without ms':>22} {'total s':>8}  way, MiB before the stop")
    spread = lambda v: f"{statistics.median(v):.1f} ({min(v):.1f} to {max(v):.1f})"
    if o.json:
        names = ("stall_ms", "gap_ms", "held_ms", "total_s", "quiet_ms")
        rows = [{"gib": gib, "kind": kind, "precopy": precopy, **{name: [r[i] for r in v] for i, name in enumerate(names)}}
                for (gib, kind, precopy), v in out.items() if not isinstance(v[0], float)]
        with open(o.json, "w") as f:
            json.dump({"rows": rows}, f)
    for (gib, kind, precopy), v in sorted(out.items(), key=lambda e: (e[0][0], e[0][1], e[0][2] == "off")):
        if isinstance(v[0], float):
            print(f"{gib:5g} {kind}, {precopy}: {spread(v)}")
            continue
        print(f"{gib:5g} {kind:<20} {precopy:<6} {spread([r[0] for r in v]):>22} {spread([r[1] for r in v]):>22} {spread([r[2] for r in v]):>22} {spread([r[4] for r in v]):>22} {statistics.median(r[3] for r in v):8.2f}  {v[-1][5]}, {v[-1][6]}")


if __name__ == "__main__":
    main()
