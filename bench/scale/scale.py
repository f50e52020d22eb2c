#!/usr/bin/env python3
"""How what a snapshot and a restore cost grows with what a program has.

    bench/scale/scale.py BUILD [--kinds mappings,threads] [--rounds 3] [--most 1000] [--work DIR] [--json FILE]

A program (grow.cc) has N of one kind of thing; it is snapshot twice, killed, restored, and asked whether all of them are there.
A restore reads from the page cache. Shown for each N: the stall and the whole snapshot (the second one, of a program that a snapshot knows already), the time of the restore
until the program runs, the bytes of the manifest, and the most memory of ours: during the first snapshot (what it adds to the program, and the writer's), and of the
command that restores. For snapshots, N is how many are in the store; listed and pruned
are all of them. Larger programs (--most leaves them out) are measured once, not in rounds; memory that the machine does not have is left out. The last line of a kind is the exponent of the growth between the two largest N, without what the smallest one costs:
1 is linear. Medians. `machine_ms`: what one thread takes, right before the restore, to read the store from the page cache and to touch as much fresh memory.

`beyond` extends what was measured by the line through the two largest N: what a program of such a size would cost by these figures.
"""
import argparse
import json
import math
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "host"))
from run import warm_memory  # noqa: E402

POINTS = {
    "memory": [16, 64, 256, 1024, 4096, 16384],
    "device": [16, 64, 256, 1024, 4096],
    "mappings": [10, 100, 1000, 10000, 60000],
    "descriptors": [10, 100, 1000, 10000],
    "threads": [1, 10, 100, 1000],
    "processes": [1, 4, 16, 64],
    "allocations": [100, 1000, 10000, 100000, 1000000],
    "snapshots": [10, 100, 1000, 10000],
}
MEASURED = ["stall_ms", "snapshot_ms", "restore_ms", "machine_ms", "snapshot_mib", "restore_mib", "manifest_bytes"]
ONCE = 10000  # from here on one round
# MiB that a restore takes of fresh memory for each of a kind.
RESTORED = {"memory": 1, "device": 2, "allocations": 1 / 256}
OF_STORES = ["stall_ms", "snapshot_ms", "restore_ms", "list_ms", "prune_ms", "manifest_bytes"]


def measured(kind):
    """What is measured of a kind; `machine_ms`: what the machine alone takes for what a restore moves, where it moves much."""
    return OF_STORES if kind == "snapshots" else [name for name in MEASURED if name != "machine_ms" or kind in RESTORED]


def read_file(path):
    with open(path) as f:
        return f.read()


def status_mib(pid, field):
    """A line of /proc/PID/status in MiB; 0 where there is no such process."""
    try:
        return next(int(line.split()[1]) / 1024 for line in read_file(f"/proc/{pid}/status").splitlines() if line.startswith(field + ":"))
    except (OSError, StopIteration):
        return 0


def machine_alone(store, mib):
    """Milliseconds that one thread takes to read a store, which is in the page cache, and to touch as much fresh memory as a restore of it takes."""
    mib = max(1, int(mib))
    read_all(store)  # the first time from the disk
    warm_memory(mib)
    began = time.monotonic()
    read_all(store)
    memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
    took = (time.monotonic() - began) * 1000
    memory.close()
    return took


def read_all(folder):
    for at, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(at, name), "rb", buffering=0) as file:
                while file.read(4 << 20):
                    pass


class WriterMemory(threading.Thread):
    """The most memory that the writer of this store has while this runs."""

    def __init__(self, store):
        super().__init__(daemon=True)
        self.store, self.most, self.over = store, 0, threading.Event()
        self.start()

    def is_writer(self, pid):
        try:
            return read_file(f"/proc/{pid}/comm").strip() == "gpuckpt-writer" and any(
                os.readlink(f"/proc/{pid}/fd/{fd}").startswith(self.store) for fd in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return False

    def run(self):
        writer = None
        while not self.over.wait(0.005):
            if writer is None:
                writer = next((pid for pid in os.listdir("/proc") if pid.isdigit() and self.is_writer(pid)), None)
            elif mib := status_mib(writer, "VmHWM"):
                self.most = max(self.most, mib)
            else:
                writer = None

    def stop(self):
        self.over.set()
        self.join()
        return self.most


class Program:
    def __init__(self, o, kind, n, work):
        self.o, self.build, self.work, self.kind, self.n = o, os.path.abspath(o.build), work, kind, n
        self.store = f"{work}/store"
        env = {k: v for k, v in os.environ.items() if not k.startswith("GPUCKPT_")}
        env["GPUCKPT_LOG"] = "error"
        command = [f"{self.build}/bin/gpuckpt", "run", "--store", self.store, "--job", "scale", *(["--sim"] if kind in ("allocations", "device") else []),
                   "--", f"{self.build}/bin/bench_grow", kind, str(n)]
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        if self.p.stdout.readline() != "ready\n":
            sys.exit(f"{kind} {n}: the program did not start")

    def answer(self):
        self.p.stdin.write("\n")
        self.p.stdin.flush()
        said = self.p.stdout.readline().strip()
        if said != str(self.n):
            sys.exit(f"{said} of {self.n} are there")

    def checkpoint(self, tag):
        began = time.monotonic()
        done = subprocess.run([f"{self.build}/bin/gpuckpt", "checkpoint", str(self.p.pid), "--tag", tag, "--timeout", "10m", "--json"], capture_output=True, text=True)
        if done.returncode not in (0, 3):
            sys.exit(f"checkpoint failed: {done.stderr}")
        return (time.monotonic() - began) * 1000

    def memory_of_checkpoint(self, tag):
        """MiB that a snapshot adds to the program's first process at most, and of the writer."""
        with open(f"/proc/{self.p.pid}/clear_refs", "w") as f:
            f.write("5")  # VmHWM begins anew
        before, writer = status_mib(self.p.pid, "VmRSS"), WriterMemory(self.store)
        self.checkpoint(tag)
        most = writer.stop()
        return status_mib(self.p.pid, "VmHWM") - before + most

    def stall(self, tag):
        done = subprocess.run([f"{self.build}/bin/gpuckpt", "inspect", f"{self.store}@{tag}", "--json"], capture_output=True, text=True, check=True)
        meta = json.loads(done.stdout)
        return meta.get("meta", meta)["stats"]["stall_us"] / 1000

    def end(self):
        self.p.stdin.close()
        try:
            self.p.wait(30)
        except subprocess.TimeoutExpired:
            sys.exit("the program does not end")
        finally:
            self.p.kill()

    def restore(self, tag):
        status, pid_file = f"{self.work}/status", f"{self.work}/pid"
        for path in (status, pid_file):
            if os.path.exists(path):
                os.unlink(path)
        mib = self.n * RESTORED.get(self.kind, 0)
        self.machine_ms = machine_alone(self.store, mib) if mib else 0
        warm_memory(mib + 64)
        began = time.monotonic()
        command = [f"{self.build}/bin/gpuckpt", "restore", f"{self.store}@{tag}", "--status-file", status, "--pid-file", pid_file]
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while self.p.poll() is None and not (os.path.exists(status) and '"running"' in read_file(status)):
            time.sleep(0.002)
        if self.p.poll() is not None:
            sys.exit("restore failed: " + self.p.stderr.read())
        took = (time.monotonic() - began) * 1000
        self.restore_mib = status_mib(self.p.pid, "VmHWM")
        self.answer()
        return took

    def manifest_bytes(self):
        files = [f"{folder}/{name}" for folder, _, names in os.walk(f"{self.store}/snapshots") for name in names]
        return os.path.getsize(max(files, key=os.path.getmtime))


def measure(o, kind, n, work):
    p = Program(o, kind, n, work)
    try:
        ours = p.memory_of_checkpoint("first")
        took = p.checkpoint("second")
        stall = p.stall("second")
        p.answer()
        p.end()
        restored = p.restore("second")
        figures = {"stall_ms": stall, "snapshot_ms": took, "restore_ms": restored, "machine_ms": p.machine_ms, "snapshot_mib": ours, "restore_mib": p.restore_mib,
                   "manifest_bytes": p.manifest_bytes()}
        return {name: figures[name] for name in measured(kind)}
    finally:
        p.end()


def measure_store(o, n, work):
    p = Program(o, "memory", 16, work)

    def timed(*verb):
        began = time.monotonic()
        subprocess.run([f"{p.build}/bin/gpuckpt", *verb], stdout=subprocess.DEVNULL, check=True)
        return (time.monotonic() - began) * 1000

    try:
        for i in range(n - 3):
            p.checkpoint(f"t{i}")
        took = [p.checkpoint(f"last{i}") for i in range(3)]
        out = {"stall_ms": p.stall("last2"), "snapshot_ms": statistics.median(took), "list_ms": timed("list", p.store),
               "manifest_bytes": p.manifest_bytes()}
        p.end()
        out["restore_ms"] = p.restore("last2")
        p.end()
        out["prune_ms"] = timed("prune", p.store, "--keep", "1")
        return out
    finally:
        p.end()


def exponent(points, values):
    """Between the two largest, without what the smallest costs; None: it does not grow."""
    if len(points) < 3:
        return None
    base = min(values)
    low, high = values[-2] - base, values[-1] - base
    if low <= 0 or values[-1] < 1.3 * base:
        return None
    return math.log(high / low) / math.log(points[-1] / points[-2])


def beyond(points, values, n):
    """By the line through the two largest."""
    (low, high), (a, b) = points[-2:], values[-2:]
    return b + (n - high) * max(0, b - a) / (high - low)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--kinds", default=",".join(POINTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=1 << 40)
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--json")
    o = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors", flush=True)
    everything = {}
    for kind in o.kinds.split(","):
        names = measured(kind)
        points = [n for n in POINTS[kind] if n <= o.most]
        if kind == "descriptors":  # a restore needs twice as many
            room = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2 - 400
            points = sorted({min(n, room) for n in points})
        if kind == "memory":  # the program, and room for its snapshot and its restore
            room = next(int(line.split()[1]) >> 10 for line in read_file("/proc/meminfo").splitlines() if line.startswith("MemAvailable:"))
            points = [n for n in points if n * 1.27 < room]
        rows = []
        print(f"\n{kind:>12} " + " ".join(f"{name:>16}" for name in names))
        for n in points:
            runs = []
            for _ in range(1 if kind == "snapshots" or n >= ONCE else o.rounds):
                work = tempfile.mkdtemp(prefix="gpuckpt-scale-", dir=o.work)
                try:
                    runs.append(measure_store(o, n, work) if kind == "snapshots" else measure(o, kind, n, work))
                finally:
                    shutil.rmtree(work, ignore_errors=True)
            rows.append({name: statistics.median(r[name] for r in runs) for name in names})
            print(f"{n:12} " + " ".join(f"{rows[-1][name]:16.1f}" for name in names), flush=True)
        growth = {name: exponent(points, [r[name] for r in rows]) for name in names}
        print(f"{'exponent':>12} " + " ".join(f"{'flat' if growth[name] is None else f'{growth[name]:.2f}':>16}" for name in names), flush=True)
        everything[kind] = {"points": points, "rows": rows, "exponents": growth}
    print(f"\nload {os.getloadavg()[0]:.1f}")
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"load": os.getloadavg()[0], "processors": os.cpu_count(), "kinds": everything}, f, indent=1)


if __name__ == "__main__":
    main()
