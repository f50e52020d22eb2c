#!/usr/bin/env python3
"""How fast a snapshot's host memory comes back, beside a plain read of the same bytes, in one run.

    bench/host/restore.py BUILD [--mib 1024] [--kinds random,floats,weights,text] [--pages small,huge] [--rounds 5] [--work DIR] [--option=--lazy] [--criu COMMAND]

For each kind of memory (restore_fill.cc): a process is snapshotted and killed; then, in turn, a program reads the bytes from
the page cache into fresh memory with as many threads as there are processors (the floor), and the snapshot is restored, also
from the page cache. Small pages are of 4 KiB, huge ones of 2 MiB (MADV_HUGEPAGE): the program has its memory in them, a restore keeps them, and so does the floor. The digest of the memory is compared after each restore. Ratios are made pair by pair; medians and ranges
are shown, and the processor time of each side, which other programs on the machine disturb less. With --criu (as root; COMMAND starts
CRIU) the same program is dumped and restored by CRIU as well, in turn with the others, its images in the page cache.
Needs about 2 x MIB of disk (or memory, if DIR is in memory) and 3 x MIB of memory; with --criu one more MIB of disk.
"""
import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import one_restore
from run import warm_memory


def processor_time(before):
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime


class Kind:
    def __init__(self, o, build, work, kind, pages):
        self.o, self.build, self.work, self.kind, self.pages = o, build, work, kind, pages
        self.store, self.file = f"{work}/store-{kind}-{pages}", f"{work}/bytes"
        self.digest, _ = one_restore.snapshot(build, self.store, [f"{build}/bin/bench_restore_fill", str(o.mib), kind, pages, self.file])
        packs = [f"{self.store}/packs/{name}" for name in os.listdir(f"{self.store}/packs")]
        self.stored = sum(map(os.path.getsize, packs))
        subprocess.run(["cat", self.file, *packs], stdout=subprocess.DEVNULL, check=True)  # into the page cache

    def read(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([f"{self.build}/bin/bench_churn", "read", self.file, str(os.cpu_count()), self.pages],
                              capture_output=True, text=True, check=True)
        return int(done.stdout) / 1e6, processor_time(before)

    def restore(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, digest, _ = one_restore.restore(self.build, self.store, self.work, self.o.option)
        if digest != self.digest:
            sys.exit(f"{self.kind}: the restored memory is not what it was")
        return seconds, processor_time(before)


class Criu:
    """The program as CRIU restores it: detached, with a named pipe as its input and a file as its output."""

    def __init__(self, o, program, work, kind, pages):
        self.command, self.images = o.criu.split(), f"{work}/criu-{kind}-{pages}"
        self.input, self.output, self.pid_file = f"{work}/criu-in", f"{work}/criu-out", f"{work}/criu-pid"
        os.mkdir(self.images)
        for path in (self.input, self.output):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        os.mkfifo(self.input)
        self.to = os.open(self.input, os.O_RDWR)
        with open(self.input, "rb", buffering=0) as stdin, open(self.output, "wb") as stdout:
            p = subprocess.Popen([program, str(o.mib), kind, pages], stdin=stdin, stdout=stdout, stderr=stdout, start_new_session=True, cwd="/")
        self.await_line(1)
        self.digest = self.ask()
        self.size = os.path.getsize(self.output)
        self.run("dump", "-t", str(p.pid))
        p.wait()
        subprocess.run(["cat", *(f"{self.images}/{name}" for name in os.listdir(self.images))], stdout=subprocess.DEVNULL, check=True)

    def run(self, verb, *more):
        log = f"{verb}.log"
        done = subprocess.run([*self.command, verb, "-D", self.images, "-o", log, *more], capture_output=True)
        if done.returncode:
            with open(f"{self.images}/{log}", errors="replace") as f:
                sys.exit(f"criu {verb} failed: {f.read()[-500:]}")

    def await_line(self, number):
        while True:
            with open(self.output) as f:
                lines = f.readlines()
            if len(lines) >= number and lines[number - 1].endswith("\n"):
                return lines[number - 1]
            time.sleep(0.002)

    def ask(self):
        os.write(self.to, b"\n")
        return self.await_line(2)

    def restore(self):
        os.truncate(self.output, self.size)  # CRIU compares it
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.pid_file)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        self.run("restore", "-d", "--pidfile", self.pid_file)
        took = time.monotonic() - began, processor_time(before)
        os.write(self.to, b"\n")
        if self.await_line(3) != self.digest:
            sys.exit("the memory that CRIU restored is not what it was")
        with open(self.pid_file) as f:
            pid = int(f.read())
        os.kill(pid, signal.SIGKILL)
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.005)
        return took

    def end(self):
        os.close(self.to)
        shutil.rmtree(self.images)


def shown(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--kinds", default="random,floats,weights,text")
    parser.add_argument("--pages", default="small,huge")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/var/tmp")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--criu", help="how CRIU is started, with its arguments before the verb")
    parser.add_argument("--json")
    o = parser.parse_args()
    rows = []
    work = tempfile.mkdtemp(prefix="gpuckpt-bench-", dir=o.work)
    print(f"{o.mib} MiB, {o.rounds} rounds, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print("kind     pages  stored   floor, s            restore, s          restore / floor     CPU: floor  restore" + ("   CRIU, s             restore / CRIU" if o.criu else ""))
    try:
        for kind, pages in ((kind, pages) for pages in o.pages.split(",") for kind in o.kinds.split(",")):
            k = Kind(o, os.path.abspath(o.build), work, kind, pages)
            criu = Criu(o, f"{os.path.abspath(o.build)}/bin/bench_restore_fill", work, kind, pages) if o.criu else None
            reads, restores, others = [], [], []
            for _ in range(o.rounds):
                warm_memory(1.1 * o.mib, pages == "huge")
                reads.append(k.read())
                warm_memory(1.1 * o.mib, pages == "huge")
                restores.append(k.restore())
                if criu:
                    warm_memory(1.1 * o.mib, pages == "huge")
                    others.append(criu.restore())
            ratio = [b[0] / a[0] for a, b in zip(reads, restores)]
            cpu = [statistics.median(x[1] for x in side) for side in (reads, restores)]
            print(f"{kind:8} {pages:5} {k.stored / 2**20 / o.mib * 100:4.0f} %   {shown([x[0] for x in reads]):19} {shown([x[0] for x in restores]):19} "
                  f"{shown(ratio):19} {cpu[0]:10.2f} {cpu[1]:8.2f}"
                  + (f"   {shown([x[0] for x in others]):19} {shown([b[0] / a[0] for a, b in zip(others, restores)])}" if criu else ""), flush=True)
            rows.append({"kind": kind, "pages": pages, "stored": k.stored / 2**20 / o.mib, "floor_s": [x[0] for x in reads], "restore_s": [x[0] for x in restores],
                         "criu_s": [x[0] for x in others]})
            if criu:
                criu.end()
            shutil.rmtree(k.store)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"mib": o.mib, "rows": rows}, f)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
