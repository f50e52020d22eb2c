#!/usr/bin/env python3
"""Snapshots of a program that does everything to its memory (wild.cc), one after the other, each of them restored: every page must be
what the program's own books say it was at that moment.

    wild_test.py BUILD WILD TRACK COPY SEED [SNAPSHOTS [PROCESSES]]
"""
import glob
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

build, wild, track, way, seed = sys.argv[1:6]
count = int(sys.argv[6]) if len(sys.argv) > 6 else 6
processes = sys.argv[7] if len(sys.argv) > 7 else "1"
folder = tempfile.mkdtemp(prefix="gpuckpt-wild-")
os.chmod(folder, 0o755)
env = {k: v for k, v in os.environ.items() if k in ("GPUCKPT_FILL", "GPUCKPT_NAMESPACES") or not k.startswith(("GPUCKPT_", "LD_PRELOAD"))}
store, steps = f"{folder}/store", f"{folder}/steps"
random.seed(int(seed))


def ids():
    return sorted(os.path.basename(p)[: -len(".manifest")] for p in glob.glob(f"{store}/snapshots/*.manifest"))


def now():
    return struct.unpack("Q", open(steps, "rb").read(8))[0]


def restore(name, least):
    pid_file = f"{folder}/pid"
    if os.path.exists(pid_file):
        os.unlink(pid_file)
    p = subprocess.Popen([f"{build}/bin/gpuckpt", "restore", f"{store}@{name}", "--pid-file", pid_file], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.time() + 30
    while not os.path.exists(pid_file) and p.poll() is None and time.time() < end:
        time.sleep(0.01)
    if p.poll() is None:
        time.sleep(0.05)
        try:
            os.kill(int(open(pid_file).read()), signal.SIGUSR2)
        except ProcessLookupError:
            pass  # It has ended: its status and what it said follow.
    try:
        out, err = p.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        p.kill()
        return f"{name}: the restored program hangs"
    if p.returncode != 0:
        return f"{name}: status {p.returncode}: {err.strip()}"
    if now() < least:
        return f"{name}: is older than when it was asked for: {now()} steps, not {least}"
    return None


program = subprocess.Popen([wild, seed, steps, processes], env=dict(env, LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=store, GPUCKPT_TRACK=track, GPUCKPT_COPY=way, GPUCKPT_LEVEL="1", GPUCKPT_LOG=os.environ.get("WILD_LOG", "warn")), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
wrong = []
try:
    while not (os.path.exists(steps) and os.path.getsize(steps)) and program.poll() is None:
        time.sleep(0.01)
    time.sleep(0.4)
    taken = []
    for i in range(count):
        before, have = now(), ids()
        program.send_signal(signal.SIGUSR1)
        end = time.time() + 30
        while len(ids()) == len(have) and time.time() < end and program.poll() is None:
            time.sleep(0.01)
        new = [x for x in ids() if x not in have]
        if not new:
            wrong.append(f"snapshot {i} did not come (program: {program.poll()})")
            break
        taken.append((new[0], before))
        time.sleep(random.choice([0, 0, 0.05, 0.3]))
    program.send_signal(signal.SIGUSR2)
    if program.wait(30) != 0:
        wrong.append(f"the program itself ended with {program.returncode}")
    wrong += [w for w in (restore(*t) for t in taken) if w]
finally:
    program.kill()
    shutil.rmtree(folder, ignore_errors=True)
print("\n".join(wrong) if wrong else f"{len(taken)} snapshots restored: ok")
sys.exit(1 if wrong else 0)
