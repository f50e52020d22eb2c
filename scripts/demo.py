#!/usr/bin/env python3
"""Train, snapshot while training goes on, kill -9, restore in a fresh process, finish, compare (called by ./demo)."""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]


def say(text=""):
    print(text, flush=True)


def shown(command, work):
    """The command as one would type it in the source folder, the work folder being $T."""
    words = (str(c).replace(str(work), "$T") for c in command)
    return " ".join(os.path.relpath(w, SOURCE) if w.startswith(str(SOURCE)) else w for w in words)


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def wait_for(what, condition, process, seconds=600):
    begin = time.monotonic()
    while not (value := condition()):
        if process.poll() is not None:
            sys.exit(f"demo: the program ended with {process.returncode} before {what}")
        if time.monotonic() - begin > seconds:
            sys.exit(f"demo: no {what} after {seconds} s")
        time.sleep(0.02)
    return value


def size(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024


class Demo:
    def __init__(self, options):
        self.build = Path(options.build).resolve()
        self.gpuckpt = self.build / "bin" / "gpuckpt"
        self.work = Path(tempfile.mkdtemp(prefix="gpuckpt-demo-"))
        self.store = self.work / "store"
        self.random = random.Random(options.seed)
        self.steps = options.steps or (40 if options.torch else 120)
        self.torch = options.torch
        self.program = ([SOURCE / ".deps/torch/bin/python", SOURCE / "examples/train_gpt.py"] if options.torch else
                        [SOURCE / ".venv/bin/python", SOURCE / "examples/train.py"] if options.python else
                        [self.build / "examples/train_charlm"])
        if options.torch:  # kernels are compiled once for all runs of the demo
            for name in ("TRITON_CACHE_DIR", "FLAGGEMS_CACHE_DIR"):
                os.environ.setdefault(name, str(SOURCE / ".deps/torch" / name.lower()))
        self.errors = open(self.work / "errors", "w+")

    def trainer(self, log):
        return [*map(str, self.program), "--steps", str(self.steps), "--log", str(self.work / log), *self.text]

    text = ["/usr/share/common-licenses/GPL-3"] if Path("/usr/share/common-licenses/GPL-3").exists() else \
        [str(SOURCE / "LICENSE")]

    def start(self, *command, env=None):
        say(f"$ {shown(command, self.work)}")
        # Its output may not hang on this terminal: a snapshot of a process can outlive it.
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.errors,
                                stderr=self.errors, cwd=self.work, start_new_session=True, env=env)

    def json(self, *arguments):
        done = subprocess.run([self.gpuckpt, *map(str, arguments), "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else []

    def uninterrupted(self):
        say(f"T={self.work}\n")
        say(f"1. An uninterrupted run of {self.steps} steps, without gpuckpt, for comparison")
        simgpu = self.build / "lib/simgpu"
        begin = time.monotonic()
        env = {**os.environ, "LD_LIBRARY_PATH": str(simgpu)}
        if self.torch:  # what --sim=torch sets
            ptxas = str(simgpu / "ptxas")
            env |= {"LD_PRELOAD": f"{simgpu}/libcuda.so.1:{simgpu}/libcudart.so.13", "GPUCKPT_SIM": "torch", "GEMS_VENDOR": "nvidia",
                    "PYTHONPATH": str(simgpu / "python"), "TRITON_LIBCUDA_PATH": str(simgpu), "TRITON_PTXAS_PATH": ptxas,
                    "TRITON_PTXAS_BLACKWELL_PATH": ptxas}
        process = self.start(*self.trainer("uninterrupted.log"), env=env)
        if process.wait():
            self.fail(f"the program ended with {process.returncode}")
        self.expected = lines(self.work / "uninterrupted.log")
        say(f"   {self.expected[1]} ... {self.expected[-2]} in {time.monotonic() - begin:.1f} s; {self.expected[-1]}")

    def snapshot_and_kill(self):
        at = self.random.randint(self.steps // 8, self.steps // 2)
        log = self.work / "train.log"
        say(f"\n2. The same under gpuckpt: SIGUSR1 at step {at}, and kill -9 some steps later")
        process = self.start(self.gpuckpt, "run", "--sim=torch" if self.torch else "--sim", "--store", self.store, "--", *self.trainer("train.log"))
        wait_for(f"step {at}", lambda: len(lines(log)) > at, process)
        say(f"$ kill -USR1 {process.pid}")
        begin = time.monotonic()
        os.kill(process.pid, signal.SIGUSR1)
        taken = wait_for("snapshot", lambda: self.json("list", self.store), process)
        self.durable = time.monotonic() - begin
        self.meta = taken[0]
        reached = len(lines(log)) - 1
        wait_for("three more steps", lambda: len(lines(log)) - 1 >= reached + 3, process)
        say(f"$ kill -9 {process.pid}")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.killed_at = len(lines(log)) - 1
        say(f"   durable after {self.durable:.2f} s, training went on meanwhile; killed at step {self.killed_at}")
        if lines(log) != self.expected[:len(lines(log))]:
            self.fail("the losses after the snapshot differ from those of the uninterrupted run")

    def restore(self):
        say("\n3. Restored in a fresh process, finished, compared")
        pid_file = self.work / "pid"
        begin = time.monotonic()
        process = self.start(self.gpuckpt, "restore", f"{self.store}@{self.meta['id']}", "--pid-file", pid_file)
        wait_for("restored process", lambda: pid_file.exists(), process)
        self.restored = time.monotonic() - begin
        first = len(lines(self.work / "train.log"))
        if process.wait():
            self.fail(f"the restored program ended with {process.returncode}")
        got = lines(self.work / "train.log")
        if got != self.expected:
            i = next((i for i, (a, b) in enumerate(zip(got, self.expected)) if a != b), min(len(got), len(self.expected)))
            self.fail(f"line {i + 1} differs: {got[i:i + 1]} instead of {self.expected[i:i + 1]}")
        say(f"   went on at step {first}, {len(got) - 1 - first} losses and the final digest identical: {got[-1]}")

    def table(self):
        sizes, stats = self.meta["sizes"], self.meta["stats"]
        logical, stored = sizes["logical_bytes"], sizes["stored_bytes"]
        rows = [("stall of the training", f"{stats['stall_us'] / 1e3:.1f} ms"),
                ("captured", f"{size(logical)}, {size(stats['device_bytes'])} of it on the GPU"),
                ("stored", f"{size(stored)}" + (f", {logical / stored:.1f} to 1" if stored else "")),
                ("trigger to durable", f"{self.durable:.2f} s"),
                ("restore until it runs", f"{self.restored:.2f} s")]
        say()
        for name, value in rows:
            say(f"   {name:24}{value}")
        say("\nidentical: the restored run ended exactly as the uninterrupted one")

        shutil.rmtree(self.work)

    def fail(self, why):
        self.errors.seek(0)
        sys.exit(f"demo: {why}\n{self.errors.read()[-2000:]}demo: files are left in {self.work}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=SOURCE / "build")
    parser.add_argument("--python", action="store_true", help="examples/train.py instead of examples/train_charlm.cu")
    parser.add_argument("--torch", action="store_true", help="examples/train_gpt.py, with PyTorch's operators in Triton")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(20), help="of the random step")
    demo = Demo(parser.parse_args())
    demo.uninterrupted()
    demo.snapshot_and_kill()
    demo.restore()
    demo.table()


if __name__ == "__main__":
    main()
