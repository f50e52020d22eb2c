#!/usr/bin/env python3
"""How long a snapshot of device memory takes until it is durable, and its restore, beside their baselines in the same run.

    bench/device/durable.py BUILD [--mib 512] [--rounds 5] [--work DIR] [--rest S] [--real]

A process (churn.cc) with N MiB of device memory that nothing can shorten, all of it changed before each snapshot; not compressed.
Baselines, in turn with it: all of it to pinned memory, as many bytes written and synced; for the restore all of it from pinned into
new memory, and the files read and checked. What the hash kernel takes is left out on the simulated GPU, which interprets it. Medians
of the rounds.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "host"))
from run import let_go_of_cache, restores, warm_memory  # noqa: E402


class Churn:
    def __init__(self, build, mib, env):
        # No file of ours is its standard error: a restore would cut it to what it was.
        self.p = subprocess.Popen([f"{build}/bin/bench_device_churn", str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=env, text=True)
        assert self.p.stdout.readline() == "ready\n"

    def ask(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return int(self.p.stdout.readline()) / 1e6

    def end(self):
        self.p.kill()
        self.p.wait()


class Bench:
    def __init__(self, o, work):
        self.build, self.rounds, self.real, self.rest = os.path.abspath(o.build), o.rounds, o.real, o.rest
        self.work, self.store = work, f"{work}/store"
        self.plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        if not o.real:
            self.plain["LD_LIBRARY_PATH"] = f"{self.build}/lib/simgpu"
            self.plain["SIMGPU_MEMORY"] = f"{4 * o.mib + 256}M"
        self.env = dict(self.plain, LD_PRELOAD=f"{self.build}/lib/libgpuckpt.so", GPUCKPT_STORE=self.store, GPUCKPT_LEVEL="0", GPUCKPT_LOG="warn")

    def gpuckpt(self, *arguments):
        r = subprocess.run([f"{self.build}/bin/gpuckpt", *arguments], capture_output=True, text=True, env=self.plain)
        if r.returncode:
            sys.exit(f"gpuckpt {' '.join(arguments)}: {r.stderr}")
        return r.stdout

    def checkpoint(self, churn, tag):
        begin = time.monotonic()
        self.gpuckpt("checkpoint", str(churn.p.pid), "--tag", tag, "--json")
        total = time.monotonic() - begin
        meta = json.loads(self.gpuckpt("inspect", f"{self.store}@{tag}", "--json"))
        return total, meta.get("meta", meta)["stats"]

    def snapshots(self, mib):
        """Seconds of each: until durable (without the hash kernel), out, dump; and a step's, before and while."""
        c, all_of = Churn(self.build, mib, self.env), []
        self.checkpoint(c, "first")
        for i in range(self.rounds):
            row = {}
            for ours in (i % 2 == 0, i % 2 == 1):
                time.sleep(self.rest)
                warm_memory(1.2 * mib + 512)
                if ours:
                    c.ask("change")
                    c.ask("steps on")
                    time.sleep(0.5)
                    row["step before"] = c.ask("step")
                    total, stats = self.checkpoint(c, f"s{i}")
                    row["step while"] = c.ask("step")
                    c.ask("steps off")
                    row["ours"] = total - (0 if self.real else stats["hash_us"] / 1e6)
                    row["moved"] = stats["moved_bytes"]
                    let_go_of_cache(self.store)
                else:
                    row["out"] = c.ask("out")
                    # It stays, as the snapshots do: a disk may be several times as fast where a deleted file was.
                    row["dump"] = c.ask(f"dump {self.work}/dump{i}")
                    let_go_of_cache(f"{self.work}/dump{i}")
                    warm_memory(1.2 * mib + 512)
                    row["in"] = c.ask("in")
            all_of.append(row)
        c.end()
        return all_of

    def restores(self, tag, mib):
        """Seconds until the program runs, files in the page cache."""
        times, refused = restores(self.build, f"{self.store}@{tag}", self.work, self.rounds, self.plain, before=lambda: warm_memory(1.2 * mib + 512))
        if not times:
            sys.exit("restore: " + refused)
        return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--rest", type=float, default=2, help="seconds before each write: disks of virtual machines have a budget that refills")
    parser.add_argument("--real", action="store_true", help="the machine's driver instead of the simulated one")
    o = parser.parse_args()
    work = tempfile.mkdtemp(prefix="gpuckpt-bench-", dir=o.work)
    try:
        run(o, Bench(o, work))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run(o, bench):
    mib, middle = o.mib, statistics.median
    rows = bench.snapshots(mib)
    of = lambda key: [r[key] for r in rows]
    slower = [max(r["out"], r["dump"]) for r in rows]
    share = middle(s / r["ours"] for s, r in zip(slower, rows))
    print(f"{mib} MiB of device memory, all changed, not compressed; {os.cpu_count()} CPUs; medians of {o.rounds}")
    print(f"all of it to pinned memory            {mib / middle(of('out')):.0f} MiB/s")
    print(f"written and synced                    {mib / middle(of('dump')):.0f} MiB/s ({mib / max(of('dump')):.0f}..{mib / min(of('dump')):.0f})")
    print(f"snapshot to durable                   {mib / middle(of('ours')):.0f} MiB/s ({mib / max(of('ours')):.0f}..{mib / min(of('ours')):.0f}) = "
          f"{share * 100:.0f} % of the slower of the two   [>= 80 %: {'ok' if share >= 0.8 else 'MISSED'}]")
    moved = middle(of("moved")) / (mib << 20)
    print(f"bytes moved to the host               {moved:.3f} of the changed   [<= 1.05: {'ok' if moved <= 1.05 else 'MISSED'}]")
    before, during = middle(of("step before")), middle(of("step while"))
    print(f"a step while it drains                {during * 1e6:.0f} us, before {before * 1e6:.0f} us: {(during / before - 1) * 100:+.0f} %"
          + ("   [<= 3 %]" if o.real else " (the simulated GPU works on the writer's processors)"))
    tag = f"s{o.rounds - 1}"
    bench.gpuckpt("verify", f"{bench.store}@{tag}")  # its files are in memory then
    verifies = []
    for _ in range(3):
        begin = time.monotonic()
        bench.gpuckpt("verify", f"{bench.store}@{tag}")
        verifies.append(time.monotonic() - begin)
    large = bench.restores(tag, mib)
    small_bench = Churn(bench.build, 1, bench.env)
    bench.checkpoint(small_bench, "small")
    small_bench.end()
    small = bench.restores("small", 1)
    back, read = middle(of("in")), middle(verifies)
    whole, own = max(back, read), large - small
    print(f"all of it into new device memory      {mib / back:.0f} MiB/s")
    print(f"all of it read and checked            {mib / read:.0f} MiB/s (the whole of `verify`)")
    print(f"restore of it                         {mib / own:.0f} MiB/s = {whole / own * 100:.0f} % of the slower of the two   "
          f"[>= 80 %: {'ok' if whole / own >= 0.8 else 'MISSED'}] ({large * 1e3:.0f} ms until the program runs, {small * 1e3:.0f} with 1 MiB)")


if __name__ == "__main__":
    main()
