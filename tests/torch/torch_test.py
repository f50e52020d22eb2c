#!/usr/bin/env python3
"""An unmodified PyTorch trainer on the simulated GPU, snapshot at random moments, killed and restored:
torch_test.py [--count N | --chain N] [--user nobody] [--build DIR] [--python PYTHON] [--limit S] [--program FILE] [-- [NAME=VALUE] ARGUMENTS of examples/train_gpt.py]

One undisturbed run says what the losses are. Each cycle snapshots a run at a random step (in turn by SIGUSR1 and by the command
line), kills it some time later and restores it; its log must be the undisturbed one's, to the last bit. The steps of --cpu are
compared with the same model on the CPU: the simulated GPU must train, not only repeat itself.

Skipped (exit 77) where no Python has the versions that --sim=torch is tested with; none is installed for it. --python or
GPUCKPT_TORCH_PYTHON names one, else .deps/torch, which `./setup --torch` makes, is taken.
"""
import argparse
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from harness import Failure  # noqa: E402

ENVIRONMENT = re.compile(r"[A-Z_]+=")
TRAINER = harness.SOURCE / "examples" / "train_gpt.py"
sys.path.insert(0, str(harness.SOURCE / "python" / "sim"))
from gpuckpt_sim_torch import TESTED  # noqa: E402


class Tools(harness.Tools):
    """Kernels are compiled once for all runs, and kept for the next test."""

    def __init__(self, build, python, user=None, program=TRAINER):
        super().__init__(build)
        self.program = program
        self.python, self.user, self.cache = python, user, build / "tests" / ("torch" if user is None else f"torch-{user}")
        self.cache.mkdir(parents=True, exist_ok=True)
        if user is not None and os.getuid() == 0:
            os.chown(self.cache, user, user)


def descendants(pid):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = [pid]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found[1:]


class Session(harness.Session):
    restore_limit = 300  # seconds, on a busy machine

    def kill_all(self, process, pid):
        """The program's children, too: torch.compile's worker notices late that its parent is gone."""
        children = descendants(pid)
        self.kill(process, pid)
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def environment(self, **extra):
        kept = {name: self.tools.cache / name.lower() for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLAGGEMS_CACHE_DIR")}
        # Names of compiled code must not depend on the seeds of Python's hashes or of the simulated device.
        return super().environment(PYTHONFAULTHANDLER=1, **{name: str(path) for name, path in kept.items()}, **extra)

    def python(self, program, arguments, under_gpuckpt, **env):
        """Without gpuckpt: what --sim=torch sets, by hand, and the simulated driver in the place of the library."""
        command = [self.tools.python, program, *arguments]
        if under_gpuckpt:
            return self.popen([self.tools.gpuckpt, "run", "--sim=torch", "--store", self.store, "--", *command], self.work / "out", **env)
        sim = self.tools.build / "lib" / "simgpu"
        return self.popen(command, self.work / "out", LD_PRELOAD=f"{sim}/libcuda.so.1:{sim}/libcudart.so.13", GPUCKPT_SIM="torch",
                          PYTHONPATH=sim / "python", GEMS_VENDOR="nvidia", TRITON_LIBCUDA_PATH=sim, TRITON_PTXAS_PATH=sim / "ptxas",
                          TRITON_PTXAS_BLACKWELL_PATH=sim / "ptxas", **env)

    def train(self, arguments, under_gpuckpt=True):
        """Variables of the environment come before the trainer's own arguments, as in a shell."""
        given = [a for a in map(str, arguments) if ENVIRONMENT.match(a)]
        return self.python(self.tools.program, [a for a in map(str, arguments) if a not in given], under_gpuckpt, **dict(a.split("=", 1) for a in given))


def missing(python):
    """What keeps this Python from being used; "": nothing."""
    if not python or not Path(python).exists():
        return "no Python with PyTorch: --python, GPUCKPT_TORCH_PYTHON or ./setup --torch"
    ask = "import importlib.metadata as m, sys\nfor p in sys.argv[1:]: print(m.version(p).split('+')[0])"
    done = subprocess.run([str(python), "-c", ask, *TESTED], capture_output=True, text=True)
    if done.stdout.split() != list(TESTED.values()):
        return f"{python} has not {', '.join(f'{p} {v}' for p, v in TESTED.items())}"
    return ""


def losses(lines):
    """(loss, norm) of each step, from the log."""
    return [(float.fromhex(words[3]), float.fromhex(words[5])) for words in map(str.split, lines) if words[:1] == ["step"] and "loss" in words]


def undisturbed(tools, arguments, limit):
    with Session(tools, 1, tools.user) as session:
        begin = time.monotonic()
        process = session.train(arguments, under_gpuckpt=False)
        status = session.finish(process, limit)
        if status != 0:
            raise Failure(f"the trainer ended with {status}: {session.errors('out')}")
        return session.lines(), time.monotonic() - begin


def cycle(tools, arguments, expected, seed, limit):
    with Session(tools, seed, tools.user) as session:
        process = session.train(arguments)
        session.wait_lines(session.random.randint(2, max(2, len(expected) * 2 // 3)), process, timeout=limit)
        time.sleep(session.random.random() * 0.5)
        snapshot = session.snapshot(process, "signal" if seed % 2 else "cli", timeout=120)
        figures = next(s for s in session.snapshots() if s["id"] == snapshot)
        time.sleep(session.random.random())
        session.kill(process)
        session.compare(expected, prefix=True)
        killed_at = len(session.lines())
        restored = session.restore(snapshot)
        status = session.finish(restored, limit)
        if status != 0:
            raise Failure(f"restored, it ended with {status}: {session.errors('restore')} {session.errors('out')}")
        session.compare(expected)
        sizes, stats = figures["sizes"], figures["stats"]
        return (f"killed at line {killed_at}; {sizes['logical_bytes'] >> 20} MiB captured, stored as {sizes['stored_bytes'] >> 20}, "
                f"stall {stats['stall_us'] / 1e3:.0f} ms, restored in {restored.restore_seconds:.1f} s")


def chain(tools, arguments, expected, seed, limit, count):
    """One training: snapshot, killed, restored, and again so many times. Returns how many times."""
    with Session(tools, seed, tools.user) as session:
        process = session.train(arguments)
        pid, done, refused, stalls, seconds = process.pid, 0, 0, [], []
        gap = max(1, (len(expected) - 2) * 2 // (count + 1))  # at most this many lines from one to the next
        while done < count:
            goal = len(session.lines()) + session.random.randint(1, gap)
            if goal >= len(expected):
                break
            session.wait_lines(goal, process, timeout=limit)
            time.sleep(session.random.random() * 0.5)
            try:
                snapshot = session.snapshot(process, session.random.choice(["signal", "cli"]), pid, timeout=120)
            except Failure as failure:  # a busy machine
                refused += 1
                print(f"line {goal}: no snapshot: {failure}", flush=True)
                if process.poll() is not None or refused > count // 10:
                    raise
                continue
            stalls.append(next(s for s in session.snapshots() if s["id"] == snapshot)["stats"]["stall_us"] / 1e3)
            time.sleep(session.random.random())
            session.kill_all(process, pid)
            session.compare(expected, prefix=True)
            process = session.restore(snapshot)
            pid, done = process.restored_pid, done + 1
            seconds.append(process.restore_seconds)
            print(f"line {goal}: restored {done} times, the last time in {seconds[-1]:.1f} s", flush=True)
        status = session.finish(process, limit)
        if status != 0:
            raise Failure(f"restored {done} times, it ended with {status}: {session.errors('restore')} {session.errors('out')}")
        session.compare(expected)
        print(f"restored {done} times; stalls {min(stalls):.0f} to {max(stalls):.0f} ms, restored in {min(seconds):.1f} to {max(seconds):.1f} s",
              flush=True)
        return done


def against_cpu(tools, arguments, steps, limit):
    """The first steps on the simulated GPU and on the CPU, without dropout, whose random numbers are the device's own."""
    of = {}
    for device in ("cuda", "cpu"):
        lines, _ = undisturbed(tools, [*arguments, "--steps", steps, "--dropout", 0, "--device", device], limit)
        of[device] = losses(lines)
    if len(of["cuda"]) != steps or len(of["cpu"]) != steps:
        raise Failure(f"{of}")
    worst = max(abs(a - b) / max(abs(b), 1e-3) for gpu, cpu in zip(of["cuda"], of["cpu"]) for a, b in zip(gpu, cpu))
    bound = 0.02 if {"--bf16", "--fp16"} & set(arguments) else 1e-4
    if worst > bound:
        raise Failure(f"losses or gradient norms differ by {worst:.2g} from the CPU's: {of}")
    print(f"{steps} steps: losses and gradient norms within {worst:.1g} of the CPU's", flush=True)


def count_identical(options, one):
    """Calls one(seed), which returns a note, --count times from --seed on. The exit status: 1 when one of them failed."""
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            print(f"seed {seed}: {one(seed)}", flush=True)
        except Failure as failure:
            wrong += 1
            print(f"FAILED seed {seed}: {failure}", flush=True)
    print(f"{options.count - wrong} of {options.count} identical")
    return 1 if wrong else 0


def main():
    arguments = sys.argv[1:]
    trainer = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--python", default=os.environ.get("GPUCKPT_TORCH_PYTHON", harness.SOURCE / ".deps" / "torch" / "bin" / "python"))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--chain", type=int, default=0, help="in place of --count: so many snapshots of one training, each restored")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--user", type=lambda name: pwd.getpwnam(name).pw_uid, help="who runs it, when root tests")
    parser.add_argument("--cpu", type=int, default=3, help="steps to compare with the CPU")
    parser.add_argument("--program", default=TRAINER, type=lambda name: Path(name).resolve(), help="another one than the trainer, with --cpu 0")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run")
    options = parser.parse_args(arguments[:arguments.index("--")] if "--" in arguments else arguments)
    if why := missing(options.python):
        print(f"skipped: {why}")
        return 77
    harness.limit_processor_time(round(options.limit) * os.cpu_count())
    tools = Tools(harness.find_build(options.build), options.python, options.user, options.program)
    if options.cpu:
        against_cpu(tools, trainer, options.cpu, options.limit)
    expected, seconds = undisturbed(tools, trainer, options.limit)
    print(f"{len(expected)} lines in {seconds:.1f} s", flush=True)
    if options.chain:
        done = chain(tools, trainer, expected, options.seed, options.limit, options.chain)
        print(f"{done} of {done} identical")
        return 0
    return count_identical(options, lambda seed: cycle(tools, trainer, expected, seed, options.limit))


if __name__ == "__main__":
    sys.exit(main())
