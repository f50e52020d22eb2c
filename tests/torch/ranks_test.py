#!/usr/bin/env python3
"""Two ranks under torchrun, joined by gloo's TCP connections, snapshot at random moments, killed and restored:
ranks_test.py [--count N] [--device cpu|cuda] [--by_hand|--wrapped] [--steps N] [--build DIR] [--python PYTHON]

torchrun, its store and both ranks are one job. Losses and the digests of both ranks' parameters must be those of an undisturbed
run. --device cuda: on the simulated GPU (--sim=torch). Skipped (exit 77) like torch_test.py.
"""
import argparse
import os
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


def said(session):
    """torchrun and the operators' library say more than the program."""
    return [line for line in session.lines() if line.startswith(("step ", "digests "))]


def undisturbed(tools, options):
    with Session(tools, 1) as session:
        begin = time.monotonic()
        process = session.ranks(options, under_gpuckpt=False)
        status = session.finish(process, options.limit)
        lines = said(session)
        if status != 0 or not lines or len(set(lines[-1].split()[1:])) != 1:
            raise Failure(f"undisturbed, it ended with {status}: {lines[-1:]} {session.errors('out')}")
        print(f"{options.steps} steps of two ranks in {time.monotonic() - begin:.1f} s", flush=True)
        return lines


def cycle(tools, options, expected, seed):
    with Session(tools, seed) as session:
        process = session.ranks(options)
        goal = session.random.randint(1, max(1, len(expected) * 2 // 3))
        begin = time.monotonic()
        while len(said(session)) < goal:
            if process.poll() is not None or time.monotonic() - begin > options.limit:
                raise Failure(f"it does not come to line {goal}: {session.errors('out')}")
            time.sleep(0.02)
        snapshot = session.snapshot(process, "cli", timeout=120)
        time.sleep(session.random.random() / 2)
        session.kill_all(process)
        restored = session.restore(snapshot)
        status = session.finish(restored, options.limit)
        if status != 0 or said(session) != expected:
            raise Failure(f"restored, it ended with {status}: {said(session)[-2:]} {session.errors('restore')} {session.errors('out')}")
        stats = next(s for s in session.snapshots() if s["id"] == snapshot)["stats"]
        return f"stall {stats['stall_us'] / 1e3:.0f} ms, restored in {restored.restore_seconds:.1f} s; {expected[-1]}"


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
    parser.add_argument("--limit", type=float, default=300, help="seconds for one run")
    options = parser.parse_args()
    if why := torch_test.missing(options.python):
        print(f"skipped: {why}")
        return 77
    tools = torch_test.Tools(harness.find_build(options.build), options.python)
    tools.cache.mkdir(parents=True, exist_ok=True)
    expected = undisturbed(tools, options)
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            print(f"seed {seed}: {cycle(tools, options, expected, seed)}", flush=True)
        except Failure as failure:
            wrong += 1
            print(f"FAILED seed {seed}: {failure}", flush=True)
    print(f"{options.count - wrong} of {options.count} identical")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
