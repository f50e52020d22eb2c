#!/usr/bin/env python3
"""An inference server in PyTorch on the simulated GPU, snapshot when warm, killed and restored into serving:
serve_test.py [--count N | --chain N] [--graph] [--user nobody] [--build DIR] [--python PYTHON]

A short training on the CPU makes its weights. An undisturbed server, started without gpuckpt, says what the answers are. Each cycle
snapshots a server (idle, or while it answers), kills it, restores it from that snapshot and asks again: the answers must be the undisturbed
server's. The times from the start, cold and restored, to the first answer are printed side by side; with --chain it is one server that is
killed and restored so many times. Skipped (exit 77) like torch_test.py.
"""
import argparse
import http.client
import json
import os
import pwd
import statistics
import sys
import threading
import time

import torch_test
from ranks_test import free_port
from torch_test import Failure, harness

SERVER = harness.SOURCE / "examples" / "serve_gpt.py"
PROMPTS = ("The ", "the lice", "This prog", "you may ", "If the w", "General Public", "a", "copy of th", "terms and con", "no warran", "sour", "Free Software Fo")
TOKENS = 24


class Session(torch_test.Session):
    def serve(self, weights, port, options, under_gpuckpt):
        self.port, self.limit = port, options.limit
        arguments = ["--weights", weights, "--port", port, *(["--graph"] if options.graph else [])]
        return self.python(SERVER, arguments, under_gpuckpt)

    def ask(self, prompt, tokens=TOKENS):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.limit)
        try:
            connection.request("POST", "/", json.dumps({"prompt": prompt, "tokens": tokens}))
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        if reply.status != 200:
            raise Failure(f"{prompt!r}: status {reply.status}: {text}")
        answer = json.loads(text)
        return answer["text"], answer["score"]  # to the last bit

    def first_answer(self, process, limit):
        begin = time.monotonic()
        while True:
            try:
                return self.ask(PROMPTS[0])
            except (OSError, http.client.HTTPException):
                if process.poll() is not None or time.monotonic() - begin > limit:
                    raise Failure(f"no answer: {process.poll()} {self.errors('restore')} {self.errors('out')}") from None
                time.sleep(0.01)

    def ask_all(self, prompts=PROMPTS):
        """These prompts at once; all are more than the server has places for."""
        answers = {}

        def ask(prompt):
            try:
                answers[prompt] = self.ask(prompt)
            except (OSError, http.client.HTTPException, Failure) as error:
                answers[prompt] = repr(error)

        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


def make_weights(session, limit):
    weights = session.work / "weights.pt"
    process = session.popen([session.tools.python, torch_test.TRAINER, "--device", "cpu", "--workers", 0, "--length", 64, "--steps", 80, "--save-every", 80,
                             "--rate", 6e-3, "--save", weights], session.work / "training", OMP_NUM_THREADS=1)
    if session.finish(process, limit) != 0:
        raise Failure(f"training: {session.errors('training')}")
    return weights


def compare(answers, expected):
    wrong = {prompt: (text, expected[prompt]) for prompt, text in answers.items() if text != expected[prompt]}
    if wrong:
        raise Failure(f"{len(wrong)} of {len(answers)} answers differ: {wrong}")


def cold(tools, options, weights):
    """Seconds to the first answer, and all answers, of a server without gpuckpt."""
    with Session(tools, 1, options.user) as session:
        begin = time.monotonic()
        process = session.serve(weights, free_port(), options, under_gpuckpt=False)
        session.first_answer(process, options.limit)
        seconds = time.monotonic() - begin
        answers = session.ask_all()
        session.kill(process)
        return seconds, answers


def kill_and_restore(session, process, pid, options, expected, busy, prompts=PROMPTS):
    """Asks these prompts in the end. Returns the restored server, whose answers are right, and the seconds from the restore to the first of them."""
    asking = threading.Thread(target=session.ask_all)
    if busy:  # its connections are reset by the restore, and its places come back as they were
        asking.start()
        time.sleep(session.random.random())
    snapshot = session.snapshot(process, "cli", pid, timeout=120)
    session.kill(process, pid)
    if busy:
        asking.join()
    begin = time.monotonic()
    restored = session.restore(snapshot)
    compare({PROMPTS[0]: session.first_answer(restored, options.limit)}, expected)
    seconds = time.monotonic() - begin
    answers = session.ask_all(prompts)
    if len(answers) != len(prompts):
        raise Failure(f"{answers}")
    compare(answers, expected)
    return restored, seconds


def started(session, options, weights, expected):
    process = session.serve(weights, free_port(), options, under_gpuckpt=True)
    compare({PROMPTS[0]: session.first_answer(process, options.limit)}, expected)
    return process


def cycle(tools, options, weights, expected, seed):
    """Seconds from the restore to the first answer."""
    with Session(tools, seed, options.user) as session:
        process = started(session, options, weights, expected)
        busy = seed % 2 == 0
        restored, seconds = kill_and_restore(session, process, process.pid, options, expected, busy)
        session.kill(restored, restored.restored_pid)
        return seconds, "while it answered" if busy else "idle"


def chain(tools, options, weights, expected):
    """One server, killed and restored again and again."""
    with Session(tools, options.seed, options.user) as session:
        process = started(session, options, weights, expected)
        pid, seconds, busy = process.pid, [], 0
        for done in range(options.chain):
            now_busy = session.random.random() < 0.5
            prompts = session.random.sample(PROMPTS, 4)  # as many as the server has places for
            process, to_answer = kill_and_restore(session, process, pid, options, expected, now_busy, prompts)
            pid, busy = process.restored_pid, busy + now_busy
            seconds.append(to_answer)
            print(f"restored {done + 1} times, {busy} of them while it answered; first answer after {to_answer:.1f} s", flush=True)
        session.kill(process, pid)
        print(f"median {statistics.median(seconds):.1f} s from the restore to the first answer")
        print(f"{options.chain} of {options.chain} identical")
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--python", default=os.environ.get("GPUCKPT_TORCH_PYTHON", harness.SOURCE / ".deps" / "torch" / "bin" / "python"))
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--chain", type=int, default=0, help="in place of --count: so many snapshots of one server, each restored")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graph", action="store_true", help="the server decodes by a CUDA graph")
    parser.add_argument("--user", type=lambda name: pwd.getpwnam(name).pw_uid, help="who runs it, when root tests")
    parser.add_argument("--limit", type=float, default=300, help="seconds to a first answer")
    options = parser.parse_args()
    if why := torch_test.missing(options.python):
        print(f"skipped: {why}")
        return 77
    tools = torch_test.Tools(harness.find_build(options.build), options.python, options.user)
    with Session(tools, 0, options.user) as session:
        weights = make_weights(session, options.limit)
        _, expected = cold(tools, options, weights)
        print("answers: " + ", ".join(f"{prompt!r} {text!r} {score:.2f}" for prompt, (text, score) in expected.items()), flush=True)
        if len(set(expected.values())) < len(PROMPTS):
            raise Failure("the prompts do not tell servers apart")
        if options.chain:
            return chain(tools, options, weights, expected)
        starts, restores, wrong = [], [], 0
        for seed in range(options.seed, options.seed + options.count):
            try:
                seconds, answers = cold(tools, options, weights)
                compare(answers, expected)
                starts.append(seconds)
                seconds, when = cycle(tools, options, weights, expected, seed)
                restores.append(seconds)
                print(f"seed {seed}: snapshot {when}; first answer {starts[-1]:.1f} s after a cold start, {seconds:.1f} s after the restore", flush=True)
            except Failure as failure:
                wrong += 1
                print(f"FAILED seed {seed}: {failure}", flush=True)
    if restores:
        print(f"medians: {statistics.median(starts):.1f} s cold, {statistics.median(restores):.1f} s restored")
    print(f"{options.count - wrong} of {options.count} identical")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
