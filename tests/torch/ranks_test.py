#!/usr/bin/env python3
"""Two ranks under torchrun, joined by gloo's TCP connections, snapshot at random moments, killed and restored:
ranks_test.py [--count N | --chain N] [--device cpu|cuda] [--by_hand|--wrapped] [--steps N] [--user nobody] [--build DIR] [--python PYTHON]

torchrun, its store and both ranks are one job; SIGUSR1 goes to any of its processes. Losses and the digests of both ranks'
parameters must be those of an undisturbed run. --device cuda: on the simulated GPU (--sim=torch). --chain: N snapshots of one
training, which is killed and restored after each. Skipped (exit 77) like torch_test.py.
"""
import argparse
import os
import pwd
import socket
import sys
import time
from pathlib import Path

import torch_test
from torch_test import Failure, harness

sys.path.insert(0, str(harness.SOURCE / "tests" / "trees"))
import family  # noqa: E402

RANKS = Path(__file__).resolve().parent / "two_ranks.py"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Session(torch_test.Session):
    def ranks(self, options, under_gpuckpt=True):
        command = [self.tools.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), RANKS,
                   str(options.steps), options.device, "wrapped" if options.wrapped else "by_hand"]
        if under_gpuckpt or options.device == "cuda":
            sim = ["--sim=torch"] if options.device == "cuda" else []
            command = [self.tools.gpuckpt, "run", *sim, "--store", self.store, "--", *command]
        return self.popen(command, self.work / "out")

    def kill_all(self, process):
        family.kill_family(process, f"GPUCKPT_STORE={self.store}")

    def any_process(self, process):
        """Of those below it that the library is in: torchrun or one of the ranks."""
        def has_library(pid):
            try:
                return "libgpuckpt.so" in Path(f"/proc/{pid}/maps").read_text() and "torch" in Path(f"/proc/{pid}/cmdline").read_text()
            except OSError:
                return False

        return self.random.choice([pid for pid in family.family(process.pid) if has_library(pid)])

    def snapshot_of_job(self, process):
        how = self.random.choice(["signal", "signal", "cli"])
        snapshot = self.snapshot(process, how, self.any_process(process), timeout=120)
        return snapshot, next(s for s in self.snapshots() if s["id"] == snapshot)["stats"]["stall_us"] / 1e3

    def wait_said(self, goal, process, limit):
        begin = time.monotonic()
        while len(said(self)) < goal:
            if process.poll() is not None or time.monotonic() - begin > limit:
                raise Failure(f"it does not come to line {goal}: {self.errors('restore')} {self.errors('out')}")
            time.sleep(0.02)

    def finish_right(self, process, expected, limit):
        status = self.finish(process, limit)
        if status != 0 or said(self) != expected:
            wrong = next((f"line {i + 1} is {b!r}, not {a!r}" for i, (a, b) in enumerate(zip(expected, said(self))) if a != b), "")
            raise Failure(f"restored, it ended with {status}; {wrong} {said(self)[-2:]} {self.errors('restore')} {self.errors('out')}")


def said(session):
    """torchrun and the operators' library say more than the program."""
    return [line for line in session.lines() if line.startswith(("step ", "digests "))]


def undisturbed(tools, options):
    with Session(tools, 1, options.user) as session:
        begin = time.monotonic()
        process = session.ranks(options, under_gpuckpt=False)
        status = session.finish(process, options.limit)
        lines = said(session)
        if status != 0 or not lines or len(set(lines[-1].split()[1:])) != 1:
            raise Failure(f"undisturbed, it ended with {status}: {lines[-1:]} {session.errors('out')}")
        print(f"{options.steps} steps of two ranks in {time.monotonic() - begin:.1f} s; {lines[-1]}", flush=True)
        return lines


def cycle(tools, options, expected, seed):
    with Session(tools, seed, options.user) as session:
        process = session.ranks(options)
        session.wait_said(session.random.randint(1, max(1, len(expected) * 2 // 3)), process, options.limit)
        snapshot, stall = session.snapshot_of_job(process)
        time.sleep(session.random.random() / 2)
        session.kill_all(process)
        restored = session.restore(snapshot)
        session.finish_right(restored, expected, options.limit)
        return f"stall {stall:.0f} ms, restored in {restored.restore_seconds:.1f} s"


def chain(tools, options, expected, seed):
    """One training: snapshot, killed, restored, and again so many times. Returns how many times."""
    with Session(tools, seed, options.user) as session:
        process, done, stalls, seconds = session.ranks(options), 0, [], []
        gap = max(1, (len(expected) - 2) * 2 // (options.chain + 1))  # at most this many lines from one to the next
        while done < options.chain:
            goal = len(said(session)) + session.random.randint(1, gap)
            if goal >= len(expected):
                break
            session.wait_said(goal, process, options.limit)
            time.sleep(session.random.random() / 4)
            snapshot, stall = session.snapshot_of_job(process)
            time.sleep(session.random.random() / 2)
            session.kill_all(process)
            if said(session) != expected[:len(said(session))]:
                raise Failure(f"after {done} restores: {said(session)[-2:]}")
            process = session.restore(snapshot)
            done += 1
            stalls.append(stall)
            seconds.append(process.restore_seconds)
            print(f"{done}: line {goal}, stall {stall:.0f} ms, restored in {process.restore_seconds:.1f} s", flush=True)
        session.finish_right(process, expected, options.limit)
        return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--python", default=os.environ.get("GPUCKPT_TORCH_PYTHON", harness.SOURCE / ".deps" / "torch" / "bin" / "python"))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--by_hand", dest="wrapped", action="store_false", help="gradients all-reduced by the program (the default)")
    way.add_argument("--wrapped", action="store_true", help="by DistributedDataParallel")
    parser.add_argument("--chain", type=int, default=0)
    parser.add_argument("--user", type=lambda name: pwd.getpwnam(name).pw_uid, help="who runs it, when root tests")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one run")
    options = parser.parse_args()
    if why := torch_test.missing(options.python):
        print(f"skipped: {why}")
        return 77
    tools = torch_test.Tools(harness.find_build(options.build), options.python, options.user)
    expected = undisturbed(tools, options)
    if options.chain:
        done = chain(tools, options, expected, options.seed)
        print(f"{done} of {done} identical")
        return 0
    return torch_test.count_identical(options, lambda seed: cycle(tools, options, expected, seed))


if __name__ == "__main__":
    sys.exit(main())
