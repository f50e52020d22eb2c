#!/usr/bin/env python3
"""Connections to a process that is not part of the snapshot: connections_test.py CASE [--nobody] [--build DIR]"""
import argparse
import socket
import subprocess
import sys
from pathlib import Path

import features_test
from features_test import Failure

PROGRAM = """
import os, socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"hello")
time.sleep(0.1)  # until the answer is there, unread
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
try:
    said = s.recv(100)
    said += s.recv(100)
    print("closed after", said.decode(), flush=True)
except ConnectionResetError:
    print("reset after", said.decode(), flush=True)
print("survived", flush=True)
"""


flavour = "root"  # or "nobody", of this program's run


class Run(features_test.Run):
    def __init__(self, build):
        super().__init__("connections", flavour, build)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]

    def start(self, **env):
        process = self.popen([sys.executable, "-c", PROGRAM, str(self.port)], "out", "err",
                             LD_PRELOAD=str(self.build / "lib" / "libgpuckpt.so"), **env)
        self.connection, _ = self.server.accept()
        self.connection.sendall(b"unread")
        self.until(lambda: self.says("ready"), process, "before it was ready")
        return process

    def restored_says(self, process, text):
        self.kill(process)
        restored, _ = self.restore(1)
        self.release()
        self.finish(restored)
        if not self.says(text):
            raise Failure(f"it does not say '{text}': {(self.work / 'out').read_text()}")


def expect(good, done):
    if not good:
        raise Failure(f"exit {done.returncode}: {done.stdout}{done.stderr}")


def reset(build):
    """A connection to somebody outside is named with both addresses, and comes back reset, with what was unread."""
    run = Run(build)
    process = run.start()
    done = run.checkpoint(process.pid)
    expect(done.returncode == 3 and f" to 127.0.0.1:{run.port}; a restore finds it reset" in done.stderr, done)
    run.restored_says(process, "reset after unread")


def drop(build):
    """GPUCKPT_SOCKETS=drop: it comes back closed by the other end."""
    run = Run(build)
    process = run.start(GPUCKPT_SOCKETS="drop")
    done = run.checkpoint(process.pid)
    expect(done.returncode == 3 and "a restore finds it closed by the other end" in done.stderr, done)
    run.restored_says(process, "closed after unread")


def refuse(build):
    """GPUCKPT_SOCKETS=refuse: there is no snapshot, and the connection is as it was."""
    run = Run(build)
    process = run.start(GPUCKPT_SOCKETS="refuse")
    done = run.checkpoint(process.pid)
    expect(done.returncode == 14 and f"to 127.0.0.1:{run.port}, which is not part of the snapshot" in done.stderr, done)
    run.connection.recv(5)
    run.connection.sendall(b" and more")
    run.connection.close()
    run.release()
    run.finish(process)
    if not (run.says("closed after unread and more")):
        raise Failure("the connection of a refused snapshot is not as it was")


def port_taken(build):
    """A stranger has the port that the program's connection had: it comes back with another one, and that is told. The stranger's own
    clients, whom it has not accepted yet, are left alone."""
    run = Run(build)
    program = """
import os, socket, time
l = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(l.getsockname())
s, _ = l.accept()
print(l.getsockname()[1], flush=True)
l.close()
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
c.sendall(b"x")
print("got", s.recv(1).decode(), flush=True)
print("survived", flush=True)
"""
    process = run.popen([sys.executable, "-c", program], "out", "err", LD_PRELOAD=str(build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    done = run.checkpoint(process.pid)
    expect(done.returncode == 0, done)
    run.kill(process)
    port = int((run.work / "out").read_text().split()[0])
    stranger = socket.create_server(("127.0.0.1", port))
    client = socket.create_connection(stranger.getsockname())
    restored, _ = run.restore(1)
    client.sendall(b"for the stranger")
    if stranger.accept()[0].recv(100) != b"for the stranger":
        raise Failure("a client of the stranger's has lost its connection")
    stranger.close()
    run.release()
    run.finish(restored)
    errors = (run.work / "restore.err").read_text()
    if not run.says("got x") or f"TCP port {port} come back with port" not in errors:
        raise Failure(errors)


def inspected(build):
    """`inspect --fds` shows the addresses of each connection, and what becomes of it."""
    run = Run(build)
    program = """
import os, socket, sys, time
l = socket.create_server(("127.0.0.1", 0))
inside = socket.create_connection(l.getsockname())
accepted, _ = l.accept()
outside = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
pair = socket.socketpair()
for s in (inside, outside): print("%s:%d to %s:%d" % (*s.getsockname(), *s.getpeername()), flush=True)
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
"""
    process = run.popen([sys.executable, "-c", program, str(run.port)], "out", "err", LD_PRELOAD=str(build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    done = run.checkpoint(process.pid)
    expect(done.returncode == 3, done)
    run.kill(process)
    inside, outside = (run.work / "out").read_text().splitlines()[:2]
    shown = subprocess.run([build / "bin" / "gpuckpt", "inspect", f"{run.work / 'store'}@latest", "--fds"], env=run.environment(),
                           capture_output=True, text=True, **run.identity()).stdout
    for text, times in ((f"TCP {inside}, comes back connected", 1), (f"TCP {outside}, comes back reset", 1), ("unix stream, comes back connected", 2)):
        if shown.count(text) != times:
            raise Failure(f"'{text}' is not shown {times} times:\n{shown}")


class WithoutPeekOffset(features_test.Run):
    def under_filter(self):
        return True

    def wrapped(self, command):
        return [str(c) for c in (self.build / "tests" / "features" / "support" / "no_peek_offset", *command)]


def no_peek_offset(build):
    """A kernel that has no SO_PEEK_OFF for TCP: unread bytes are read without it."""
    wrong, _ = WithoutPeekOffset("tcp_connections", flavour, build).run()
    if wrong:
        raise Failure(wrong)


CASES = {case.__name__: case for case in (reset, drop, refuse, port_taken, inspected, no_peek_offset)}


def main(cases):
    """Runs the one that is named; what it returns, if it does (77: skipped), is the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=cases)
    parser.add_argument("--nobody", action="store_true", help="as an ordinary user, when root tests")
    parser.add_argument("--build", type=Path, default=Path("build"))
    arguments = parser.parse_args()
    global flavour
    flavour = "nobody" if arguments.nobody else "root"
    try:
        if skipped := cases[arguments.case](arguments.build.resolve()):
            return skipped
    except Failure as failure:
        print(f"{arguments.case}: {failure}")
        return 1
    print(f"ok {arguments.case}: {cases[arguments.case].__doc__}")
    return 0


if __name__ == "__main__":
    sys.exit(main(CASES))
