"""PostgreSQL and pgbench with four clients, by TCP and by its Unix socket in turn: postgres_clients.py FOLDER STEPS. A line a step.

The seed of each step's load is its number, so that the sums of the tables are the same in every run. As root the server is nobody's, as
it refuses to be root's.
"""
import os
import pwd
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))[-1].parent
data = folder / "data"
data.mkdir(mode=0o700)
as_server = {"cwd": folder}
if os.getuid() == 0:
    nobody = pwd.getpwnam("nobody")
    os.chown(data, nobody.pw_uid, nobody.pw_gid)
    as_server |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "test", "--no-sync"], check=True, **as_server, **quiet)
# Huge pages that another program gives back meanwhile are not to be had at a restore.
server = subprocess.Popen([programs / "postgres", "-D", data, "-k", data, "-p", port, "-c", "listen_addresses=127.0.0.1",
                           "-c", "shared_buffers=8MB", "-c", "fsync=off", "-c", "huge_pages=off"], **as_server, stderr=subprocess.DEVNULL)


def client(program, host, *words):
    return subprocess.run([programs / program, "-h", host, "-p", port, "-U", "test", *words, "-d", "postgres"],
                          capture_output=True, text=True)


def asked(text):
    done = client("psql", "127.0.0.1", "-Atq", "-c", text)
    return done.stdout.strip() if done.returncode == 0 else None


while asked("select 1") is None:
    if server.poll() is not None:
        sys.exit(f"the server ended with {server.returncode}")
    time.sleep(0.05)
if (done := client("pgbench", "127.0.0.1", "-i", "-q", "-s", "1")).returncode != 0:
    sys.exit(f"pgbench -i: {done.stderr}")
for step in range(steps):
    done = client("pgbench", ["127.0.0.1", str(data)][step % 2], "-n", "-c", "4", "-j", "2", "-t", "25", f"--random-seed={step}")
    count = re.search(r"actually processed: (\S+)", done.stdout)
    if done.returncode != 0 or not count:
        sys.exit(f"pgbench: {done.returncode}: {done.stderr}")
    sums = asked("select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), "
                 "(select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history), "
                 "(select count(*) from pgbench_history)")
    print("processed, sums, transactions:", count[1], sums, flush=True)
server.terminate()
sys.exit(server.wait())
