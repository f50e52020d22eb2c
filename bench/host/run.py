#!/usr/bin/env python3
"""How fast the host side is, beside its baselines in the same run.

    bench/host/run.py BUILD [--gib 1] [--work DIR] [--rounds 3] [--json FILE]

A process (churn.cc) with N GiB of half compressible memory, 8 threads that dirty 1 % of the pages per second and one that spins
on the clock; the stall is the longest gap that thread sees. Baselines: a bare fork of the same process, writing the same bytes with
write(2), `zstd -1 -T2` of them, a multi-threaded read of them into fresh memory. Memory that has to be copied in the stop (shared,
or pinned for a device) is reported apart. Medians of the rounds; on a busy machine look at
"noise", the gap without any snapshot. Needs about 3 x N GiB of disk in DIR and 2.2 x N + 0.5 GiB of memory.
"""
import argparse
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


class Churn:
    def __init__(self, build, gib, env, percent="1"):
        command = [f"{build}/bin/bench_churn", str(gib), "8", percent]
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        assert self.p.stdout.readline() == "ready\n"

    def ask(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return [int(x) for x in self.p.stdout.readline().split()]

    def end(self):
        self.p.kill()
        self.p.wait()


def timed(command, **more):
    t = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    return time.monotonic() - t


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--level", default="1")
    parser.add_argument("--json")
    o = parser.parse_args()
    build = os.path.abspath(o.build)
    work = tempfile.mkdtemp(prefix="gpuckpt-bench-", dir=o.work)
    try:
        run(o, build, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def described(build, store, tag):
    """What the snapshot says of itself: its stats, its sizes and more."""
    meta = json.loads(subprocess.run([f"{build}/bin/gpuckpt", "inspect", f"{store}@{tag}", "--json"], capture_output=True, text=True, check=True).stdout)
    return meta.get("meta", meta)


def checkpoint(build, churn, store, tag):
    churn.ask("reset")
    t = time.monotonic()
    r = subprocess.run([f"{build}/bin/gpuckpt", "checkpoint", str(churn.p.pid), "--tag", tag, "--json"], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"checkpoint failed: {r.stderr}")
    total = time.monotonic() - t
    gap, held = churn.ask("gap")
    mapped = churn.ask("map")[0]
    meta = described(build, store, tag)
    return {"gap": gap, "held": held, "mapped": mapped, "total": total, "stats": meta.get("stats", {}), "sizes": meta.get("sizes", {})}


def let_go_of_cache(path):
    """What was just written is out of memory: the next one to write must not wait for it to be made room."""
    os.sync()
    for folder, _, names in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), [], [os.path.basename(path)])]:
        for name in names:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def warm_memory(mib, huge=False):
    """A virtual machine gives free memory back to its host and pays for each page that it takes again (here 0.5 GiB/s, and 1.7
    within seconds of the last use): whoever comes next shall not pay for what the one before did not. `huge`: who takes it in huge pages."""
    advise = f"m.madvise(mmap.MADV_HUGEPAGE); [m.__setitem__(at, 1) for at in range(0, {int(mib)} << 20, 2 << 20)]"
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0 if huge else mmap.MAP_POPULATE)
    subprocess.run([sys.executable, "-c", f"import mmap; m = mmap.mmap(-1, {int(mib)} << 20, flags={flags}); {advise if huge else ''}"])


def restores(build, snapshot, work, rounds, env, options=(), before=lambda: None):
    """Seconds until the program runs, of each round; none, and what was said, when it is refused."""
    times = []
    status, pid = f"{work}/status", f"{work}/pid"
    for _ in range(rounds):
        before()
        if os.path.exists(status):
            os.unlink(status)
        command = [f"{build}/bin/gpuckpt", "restore", snapshot, "--status-file", status, "--pid-file", pid, *options]
        p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
        while p.poll() is None and not (os.path.exists(status) and '"running"' in open(status).read()):
            time.sleep(0.005)
        if p.poll() is not None:
            return [], p.stderr.read().decode().strip()
        times.append(json.load(open(status))["restore_ms"] / 1000)
        p.kill()
        try:
            os.kill(int(open(pid).read()), 9)
        except ProcessLookupError:
            pass
        p.wait()
    return times, ""


def shared_memory(o, build, work, row):
    """What neither a clone nor tracking covers: it is copied while everything stands, every time."""
    store, mib = f"{work}/shared", 512
    env = dict(os.environ, LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=store, GPUCKPT_LEVEL="1", GPUCKPT_LOG="warn")
    c = Churn(build, 0.125, env, percent="0")
    stops, copy = [], 0
    for part in ("without", "with"):
        if part == "with":
            copy = c.ask(f"share {mib}")[0]
        checkpoint(build, c, store, part)
        stops.append(statistics.median(checkpoint(build, c, store, f"{part}{i}")["stats"]["stall_us"] for i in range(o.rounds)))
    c.end()
    shutil.rmtree(store)
    rate = mib * 2**20 / 1e9
    row(f"{mib} MiB of shared memory: longer stopped by", f"{(stops[1]-stops[0])/1000:.0f} ms = {rate/(stops[1]-stops[0])*1e6:.1f} GB/s (a plain copy: {rate/copy*1e6:.1f} GB/s)", "", None)


def run(o, build, work):
    gib = o.gib
    mib = gib * 1024
    store = f"{work}/store"
    base = dict(os.environ)
    base.pop("LD_PRELOAD", None)
    env = dict(base, LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=store, GPUCKPT_LEVEL=o.level, GPUCKPT_LOG="warn")
    result = {"gib": gib}
    rows = []

    def row(name, value, target, good):
        rows.append((name, value, target, "" if good is None else "ok" if good else "MISSED"))

    c = Churn(build, gib, env)
    c.ask("reset")
    time.sleep(1)
    noise = c.ask("gap")[0]
    forks = [c.ask("fork")[0] for _ in range(o.rounds)]
    fork = statistics.median(forks)
    cpu0, n0 = c.ask("cpu 2000")
    row("noise: longest gap in 1 s without a snapshot", f"{noise/1000:.1f} ms", "", None)
    row("bare fork of the process", f"{fork/1000:.1f} ms ({min(forks)/1000:.0f}..{max(forks)/1000:.0f})", "", None)

    full = checkpoint(build, c, store, "full")
    full_forks = [full["gap"] / fork]
    full_row = len(rows)
    s = full["stats"]
    row("full: stopped, as reported", f"{s.get('stall_us', 0)/1000:.1f} ms = {s.get('stall_us', 0)/fork:.2f} forks", "", None)
    parts = lambda s: ", ".join(f"{k} {s.get(k + '_us', 0)/1000:.1f}" for k in ("park", "state", "maps", "scan", "fds", "copy", "clone", "wake", "arm", "early"))
    row("  where (ms; arm and early are not in the stop, clone contains copy)", parts(s) + f"; {s.get('way')}", "", None)

    cpu1, n1 = c.ask("cpu 2000")
    # First touches cost more: what the threads that write need more than before, as a share of one second of the whole process.
    extra = (cpu1 / max(n1, 1) - cpu0 / max(n0, 1)) * n1 / 2e6
    row("tracking armed, no snapshot: extra CPU", f"{max(extra, 0)*100:.2f} % ({cpu0/max(n0,1):.2f} -> {cpu1/max(n1,1):.2f} us per page)", "< 1 %", extra < 0.01)

    gaps, ratios, shares = [], [], []
    for i in range(o.rounds):
        # One second's worth of changed pages, however long a snapshot takes on this machine.
        c.ask("rate 0")
        checkpoint(build, c, store, f"base{i}")
        c.ask("rate 1")
        time.sleep(1)
        inc = checkpoint(build, c, store, f"inc{i}")
        s = inc["stats"]
        gaps.append(inc["gap"])
        dirty = s.get("written_bytes", 0)
        ratios.append(inc["sizes"].get("stored_bytes", 0) / dirty if dirty else float("nan"))
        shares.append(dirty / (gib * 2**30))
    gap = statistics.median(gaps)
    row("incremental: longest gap", f"{gap/1000:.1f} ms = {gap/fork:.2f} forks ({min(gaps)/1000:.0f}..{max(gaps)/1000:.0f})", "<= 0.25 forks", gap <= fork / 4)
    row("incremental: stopped, as reported", f"{s.get('stall_us', 0)/1000:.1f} ms = {s.get('stall_us', 0)/fork:.2f} forks", "", None)
    row("  where (ms)", parts(s) + f"; {s.get('way')}, {s.get('track')}", "", None)
    row("incremental: dirty share", f"{statistics.median(shares)*100:.2f} %", "", None)
    row("incremental: bytes added to the store / dirty bytes", f"{statistics.median(ratios):.2f}", "<= 1.1", statistics.median(ratios) <= 1.1)
    row("incremental: durable after", f"{inc['total']:.2f} s", "", None)

    # Throughput of a full image, on the same bytes. What a disk does changes by the minute and with the blocks that it is given (a
    # virtual one writes those that it never had slowly): in turn, each of the two first once, and both from what the last two left free.
    c.end()
    dump = f"{work}/dump"
    plains, uncompressed = [], []
    for i in range(o.rounds):
        shutil.rmtree(store)
        if os.path.exists(dump):
            os.unlink(dump)
        os.sync()
        c = Churn(build, gib, dict(env, GPUCKPT_LEVEL="0"))
        own_fork = statistics.median(c.ask("fork")[0] for _ in range(3))
        for plain_copy in (i % 2 == 0, i % 2 == 1):
            warm_memory(1.2 * mib + 512)
            if plain_copy:
                plains.append(c.ask(f"dump {dump}")[0] / 1e6)
                let_go_of_cache(dump)
            else:
                plain_full = checkpoint(build, c, store, "plain")
                uncompressed.append(plain_full["total"])
                full_forks.append(plain_full["gap"] / own_fork)
                let_go_of_cache(store)
        c.end()
    gap = statistics.median(full_forks)
    row("full: longest gap", f"{gap:.2f} forks ({min(full_forks):.2f}..{max(full_forks):.2f})", "<= 1.3 forks", gap <= 1.3)
    rows.insert(full_row, rows.pop())
    timed(["cat", dump])  # zstd is not to wait for the disk
    zstd = timed(["zstd", "-1", "-T2", "-q", "-f", dump, "-o", f"{work}/dump.zst"])
    os.sync()
    plain, total = statistics.median(plains), statistics.median(uncompressed)
    share = statistics.median(p / u for p, u in zip(plains, uncompressed))
    row("plain copy (write + fdatasync)", f"{mib/plain:.0f} MiB/s ({mib/max(plains):.0f}..{mib/min(plains):.0f})", "", None)
    row("zstd -1 -T2", f"{mib/zstd:.0f} MiB/s", "", None)
    compressed = full["total"]
    row("full: compress and write", f"{mib/compressed:.0f} MiB/s = {zstd/compressed*100:.0f} % of zstd", ">= 80 %", zstd / compressed >= 0.8)
    row("full: write without compression", f"{mib/total:.0f} MiB/s ({mib/max(uncompressed):.0f}..{mib/min(uncompressed):.0f}) = {share*100:.0f} % of a plain copy", ">= 80 %", share >= 0.8)

    shared_memory(o, build, work, row)

    # Restore, from page cache.
    timed(["sh", "-c", f"cat {store}/packs/*"])
    reads = []
    for _ in range(o.rounds):
        reads.append(int(subprocess.run([f"{build}/bin/bench_churn", "read", dump, "2", "small"], capture_output=True, text=True, check=True).stdout) / 1e6)
    read = statistics.median(reads)
    row("plain read into fresh memory, 2 threads", f"{mib/read:.0f} MiB/s", "", None)
    os.unlink(dump)
    for lazy in (False, True):
        times, refused = restores(build, f"{store}@plain", work, o.rounds, base, ["--lazy"] if lazy else [])
        if not times:
            row("restore --lazy" if lazy else "restore", "not available: " + refused[:60], "", None)
            continue
        t = statistics.median(times)
        if lazy:
            row("restore --lazy until the first thread runs", f"{t*1000:.0f} ms", "< 100 ms", t < 0.1)
        else:
            row("restore until the first thread runs", f"{t:.2f} s, {mib/t:.0f} MiB/s = {read/t*100:.0f} % of the read", ">= 70 %", read / t >= 0.7)
    width = max(len(r[0]) for r in rows)
    print(f"{gib} GiB, 8 threads, 1 % dirtied per second, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    for name, value, target, verdict in rows:
        print(f"{name:<{width}}  {value}" + (f"   [{target}: {verdict}]" if target else ""))
    print("Beside it (measured elsewhere, in bare forks of the same process): a full snapshot by CRIU stops for 20 to 60, by DMTCP (forked) for 4.")
    if o.json:
        json.dump({"rows": rows, **result}, open(o.json, "w"), indent=1)


if __name__ == "__main__":
    main()
