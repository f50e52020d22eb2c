"""A benchmark's program that says when it has its memory, is snapshotted, killed and restored, and prints a digest of its memory when it
is told to go on (restore_fill.cc, family.cc). For restore.py and family.py."""
import json
import os
import subprocess
import sys
import time


def read_file(path):
    with open(path) as f:
        return f.read()


def digest_of(p):
    p.stdin.write("\n")
    p.stdin.flush()
    return p.stdout.readline()


def snapshot(build, store, command, when_ready=lambda pid: None):
    """Starts the program, snapshots and kills it. Its digest; and what when_ready said of it, before the snapshot."""
    env = dict(os.environ, LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=store, GPUCKPT_LOG="warn")
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
    assert p.stdout.readline() == "ready\n"
    said = when_ready(p.pid)
    done = subprocess.run([f"{build}/bin/gpuckpt", "checkpoint", str(p.pid)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"checkpoint failed: {done.stderr}")
    digest = digest_of(p)
    p.kill()
    p.wait()
    return digest, said


def restore(build, store, work, options=(), when_running=lambda pid: None, **env):
    """Restores the newest snapshot and lets the program end. Seconds until it ran, its digest, and what when_running said of it."""
    status, pid_file = f"{work}/status", f"{work}/pid"
    for path in (status, pid_file):
        if os.path.exists(path):
            os.unlink(path)
    command = [f"{build}/bin/gpuckpt", "restore", f"{store}@latest", "--status-file", status, "--pid-file", pid_file, *options]
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
    while p.poll() is None and not (os.path.exists(status) and '"running"' in read_file(status)):
        time.sleep(0.002)
    if p.poll() is not None:
        sys.exit("restore failed: " + p.stderr.read())
    seconds = json.loads(read_file(status))["restore_ms"] / 1000
    said = when_running(int(read_file(pid_file)))
    digest = digest_of(p)
    p.stdin.close()
    p.wait()
    return seconds, digest, said
