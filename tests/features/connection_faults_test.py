#!/usr/bin/env python3
"""Snapshots that fail, and what fails during them, leave a job's connections as they were: connection_faults_test.py CASE [--nobody] [--build DIR]

The job is two processes with connections in many states. Each process writes down all that it can see of its own ends (options,
states, counters, queues), before and after. Then everything is read and sent on, and must be what it would have been.
"""
import errno
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import connections_test
import features_test
from features_test import Failure

PROGRAM = r"""
import array, ctypes, fcntl, json, os, select, socket, struct, sys, time

def pattern(seed, count):
    return bytes((seed * 31 + i * 7 + i // 251) % 256 for i in range(count))

def look(path, ends):
    '''All that can be seen of each socket without a change.'''
    seen = {}
    for name, s in ends.items():
        one = {}
        for level in (socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_IP):
            for option in range(100):
                if level == socket.SOL_SOCKET and option in (4, 49, 57):  # ERROR takes it, INCOMING_CPU is of the moment, COOKIE its own
                    continue
                if level == socket.IPPROTO_TCP and option in (11, 12, 24, 35):  # TCP_INFO, QUICKACK, TIMESTAMP are of the moment, ZEROCOPY_RECEIVE reads
                    continue
                try:
                    one[f"{level}.{option}"] = s.getsockopt(level, option, 64).hex()
                except OSError:
                    pass
        info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 240)
        one["state"] = info[0]
        if name.startswith("listener"):
            seen[name] = one
            continue
        acked, received = struct.unpack_from("=QQ", info, 120)
        queued = array.array("i", [0, 0])
        fcntl.ioctl(s, 0x541B, memoryview(queued)[:1])
        unsent = array.array("i", [0])
        fcntl.ioctl(s, 0x5411, unsent)
        one |= {"received": received, "acked": acked, "queued": queued[0], "unsent": unsent[0],
                "poll": [e for _, e in poll(s)], "flags": fcntl.fcntl(s, fcntl.F_GETFL), "name": str(s.getsockname()) if name != "reset" else ""}
        seen[name] = one
    with open(path + ".new", "w") as f:
        json.dump(seen, f)
    os.rename(path + ".new", path)

def poll(s):
    p = select.poll()
    p.register(s, select.POLLIN | select.POLLOUT | select.POLLPRI | select.POLLRDHUP)
    return p.poll(0)

def fill(s, seed):
    '''Writes until nothing more goes in; returns how much did.'''
    s.setblocking(False)
    sent, data = 0, pattern(seed, 1 << 23)
    for _ in range(3):
        try:
            while True:
                sent += s.send(data[sent:sent + 65536])
        except BlockingIOError:
            time.sleep(0.05)
    s.setblocking(True)
    return sent

def listen(backlog):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    s.listen(backlog)
    return s

reset = "reset" in sys.argv
listener, crowded = listen(20), listen(2)
into_child, from_child = os.pipe(), os.pipe()
child = os.fork()
if child:  # the clients' side
    ends = {}
    for name in ("idle", "unread", "full", "half", "corked", "urgent", "small"):
        c = ends[name] = socket.create_connection(listener.getsockname())
        c.sendall(name.encode().ljust(10))
    full = fill(ends["full"], 1)
    ends["unread"].sendall(pattern(2, 50000))
    ends["half"].sendall(b"the last")
    ends["half"].shutdown(socket.SHUT_WR)
    ends["corked"].setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    ends["corked"].sendall(b"held back")
    ends["urgent"].send(b"!", socket.MSG_OOB)
    if reset:
        ends["reset"] = socket.create_connection(listener.getsockname())
        ends["reset"].sendall(b"reset".ljust(10) + b"unread")
    outside = [a for a in sys.argv if a.startswith("port=")]
    if outside:
        ends["outside"] = socket.create_connection(("127.0.0.1", int(outside[0][5:])))
        ends["outside"].sendall(b"hello")
    waiting = []
    for i in range(int(sys.argv[1])):  # more than the queue has room for: the last ones are still connecting
        w = socket.socket()
        w.setblocking(False)
        w.connect_ex(crowded.getsockname())
        waiting.append(w)
    os.write(into_child[1], b"x")
    os.read(from_child[0], 1)
else:
    ends = {}
    for _ in range(7 + reset):
        s, _ = listener.accept()
        name = s.recv(10, socket.MSG_WAITALL).decode().strip()
        ends[name] = s
    if reset:  # it is on its way, or has arrived, and the other end has not asked
        ends["reset"].sendall(b"before")
        time.sleep(0.1)
        ends["reset"].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends.pop("reset").close()
    ends["small"].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ends["idle"].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ends["unread"].sendall(pattern(3, 30000))
    ends["listener"] = listener
    os.read(into_child[0], 1)
    os.write(from_child[1], b"x")

who = "client" if child else "server"
time.sleep(0.3)  # the delayed acknowledgements
if child:
    print("ready", flush=True)
looks = 0
extra = None
while not os.path.exists("go_on"):
    if os.path.exists(f"look{looks}"):
        look(f"{who}{looks}", ends)
        looks += 1
    if child and os.path.exists("outside") and not extra:  # a connection to who is no member
        extra = socket.socket(socket.AF_UNIX)
        extra.connect("outside")
        open("outside_is_there", "w")
    if extra and not os.path.exists("outside"):
        extra.close()
        extra = None
    time.sleep(0.005)

def check(what, good):
    if not good:
        print("WRONG:", who, what, flush=True)
        os._exit(1)

def everything(s):
    got = b""
    while part := s.recv(1 << 20):
        got += part
    return got

if child:
    ends["corked"].setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    check("unread", ends["unread"].recv(30000, socket.MSG_WAITALL) == pattern(3, 30000))
    for name in ("idle", "unread", "full", "corked", "urgent", "small"):
        ends[name].sendall(b"end of " + name.encode())
        ends[name].shutdown(socket.SHUT_WR)
    check("half", everything(ends["half"]) == b"answer")
    if reset:
        check("before the reset", ends["reset"].recv(100) == b"before")
        try:
            check("reset", ends["reset"].recv(100) is None)
        except ConnectionResetError:
            pass
    if outside:
        got = b""
        try:
            while part := ends["outside"].recv(100):
                got += part
            got += b", the end"
        except ConnectionResetError:
            got += b", reset"
        print(got.decode(), flush=True)
    for i, w in enumerate(waiting):
        w.settimeout(30)
        p = select.poll()
        p.register(w, select.POLLOUT)
        check(f"waiting {i}", p.poll(30000) and w.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0)
        w.sendall(b"waited %3d" % i)
    os.write(into_child[1], b"%12d" % full)
    check("the child", os.waitpid(child, 0)[1] == 0)
    print("survived", flush=True)
else:
    check("idle", everything(ends["idle"]) == b"end of idle")
    check("half", everything(ends["half"]) == b"the last")
    ends["half"].sendall(b"answer")
    ends["half"].close()
    check("unread", everything(ends["unread"]) == pattern(2, 50000) + b"end of unread")
    check("corked", everything(ends["corked"]) == b"held backend of corked")
    check("urgent", ends["urgent"].recv(1, socket.MSG_OOB) == b"!")
    check("after urgent", everything(ends["urgent"]) == b"end of urgent")
    check("small", everything(ends["small"]) == b"end of small")
    got = everything(ends["full"])
    came = []
    for _ in range(int(sys.argv[1])):
        s, _ = crowded.accept()
        came.append(s.recv(10, socket.MSG_WAITALL))
    check("crowded", sorted(came) == [b"waited %3d" % i for i in range(int(sys.argv[1]))])
    full = int(os.read(into_child[0], 12))
    check(f"full: {len(got)} of {full}", got == pattern(1, full) + b"end of full")
"""


class Run(features_test.Run):
    waiting = 2

    def __init__(self, build):
        super().__init__("connection_faults", connections_test.flavour, build)
        self.looks = 0

    def start(self, waiting=2, more=(), **env):
        process = self.popen([sys.executable, "-c", PROGRAM, str(waiting), *more], "out", "err",
                             LD_PRELOAD=str(self.build / "lib" / "libgpuckpt.so"), **env)
        self.until(lambda: self.says("ready"), process, "before it was ready")
        self.process, self.pid = process, process.pid
        return process

    def child(self):
        return int((Path("/proc") / str(self.pid) / "task" / str(self.pid) / "children").read_text().split()[0])

    def look(self):
        """What both processes see of their sockets."""
        number = self.looks
        self.looks += 1
        (self.work / f"look{number}").touch()
        files = [self.work / f"{who}{number}" for who in ("client", "server")]
        self.until(lambda: all(f.exists() for f in files), self.process, "instead of looking at its sockets")
        return [json.loads(f.read_text()) for f in files]

    def as_before(self, before, when):
        time.sleep(0.1)  # the delayed acknowledgements
        after = self.look()
        for which, (old, new) in enumerate(zip(before, after)):
            for name in old:
                if name in ("full", "corked"):  # what was held back for want of room may have arrived meanwhile
                    # (and with it the room that the kernel has taken, its segments' size, its own figures of the flow).
                    for counter in ("received", "acked", "queued", "unsent", "poll", "1.55", "6.2", "6.26"):
                        old[name].pop(counter, None), new[name].pop(counter, None)
                different = {k: (v, new[name].get(k)) for k, v in old[name].items() if new[name].get(k) != v}
                if different:
                    raise Failure(f"{when}: {'client' if which == 0 else 'server'}'s {name} differs: {different}")

    def ends_well(self, process=None):
        self.release()
        self.finish(process or self.process)

    def kill_all(self):
        for pid in (self.child(), self.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait(30)

    def taken_and_restored(self, code=0):
        done = self.checkpoint(self.pid)
        expect(done.returncode == code, done)
        self.kill_all()
        self.process, self.pid = self.restore(1)


def expect(good, done):
    if not good:
        raise Failure(f"exit {done.returncode}: {done.stdout}{done.stderr}")


def nothing(build):
    """A snapshot that succeeds: nothing is different for who goes on, and everything comes back."""
    run = Run(build)
    run.start()
    before = run.look()
    done = run.checkpoint(run.pid)
    expect(done.returncode == 0, done)
    run.as_before(before, "after a snapshot")
    run.taken_and_restored()
    run.ends_well()


def reset(build):
    """An end has been reset and has not been asked: it is told, and both who goes on and who is restored find the error."""
    for restored in (False, True):
        run = Run(build)
        run.start(more=["reset"])
        before = run.look()
        done = run.checkpoint(run.pid)
        expect(done.returncode == 3 and "is a TCP connection that has failed; a restore finds it reset" in done.stderr, done)
        run.as_before(before, "after a snapshot")
        if restored:
            run.taken_and_restored(3)
        run.ends_well()


def refused_late(build):
    """A snapshot is refused by the descriptors of one member, when those of all have been listed."""
    run = Run(build)
    run.start()
    before = run.look()
    outside = socket.socket(socket.AF_UNIX)
    outside.bind(str(run.work / "outside.new"))
    (run.work / "outside.new").chmod(0o777)  # the program may be another user's
    outside.listen()
    (run.work / "outside.new").rename(run.work / "outside")
    run.until(lambda: (run.work / "outside_is_there").exists(), run.process, "instead of connecting")
    accepted, _ = outside.accept()
    done = run.checkpoint(run.pid)
    expect(done.returncode == 14 and "not part of the snapshot" in done.stderr, done)
    (run.work / "outside").unlink()
    outside.close(), accepted.close()
    run.as_before(before, "after a refused snapshot")
    time.sleep(0.2)
    run.taken_and_restored()
    run.ends_well()


def writer_killed(build):
    """The writer is killed at any moment of a snapshot, again and again."""
    run, chance, codes = Run(build), random.Random(3), []
    run.start()
    before = run.look()
    while len(codes) < 8 or (set(codes) <= {0} and len(codes) < 40):
        asking = threading.Thread(target=lambda: codes.append(run.checkpoint(run.pid).returncode))
        asking.start()
        while asking.is_alive() and not (writers := writers_of(run)):
            pass
        time.sleep(chance.random() * 0.05)
        for writer in writers:
            kill(writer)
        asking.join()
    if set(codes) <= {0}:
        raise Failure(f"no snapshot failed: {codes}")
    run.as_before(before, f"after snapshots with exit {codes}")
    run.taken_and_restored()
    run.ends_well()


def writers_of(run):
    """By the session's folder, which is this run's own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == "gpuckpt-writer" and str(run.work).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def no_room(build):
    """The store's file system fills up."""
    run = Run(build)
    room = run.work / "room"
    room.mkdir()
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "none", str(room)], capture_output=True).returncode != 0:
        print("skipped: only root may mount a small file system")
        return 77
    try:
        run.start(GPUCKPT_STORE=str(room / "store"))
        before = run.look()
        done = run.checkpoint(run.pid)
        expect(done.returncode not in (0, 3) and done.stderr.strip(), done)
        run.as_before(before, "after a snapshot for which there was no room")
        run.ends_well()
    finally:
        subprocess.run(["umount", "-l", str(room)], check=True)


def member_killed(build):
    """A member is killed during the snapshot: the other one sees what it would see without it, at any moment."""
    chance = random.Random(4)
    for number in range(6):
        run = Run(build)
        run.start()
        child = run.child()
        asking = threading.Thread(target=lambda run=run: run.checkpoint(run.pid))
        asking.start()
        time.sleep(chance.random() * 0.15)
        os.kill(child, signal.SIGKILL)
        asking.join()
        (run.work / "go_on").touch()
        status = run.process.wait(60)
        told = (run.work / "err").read_text()
        # Its data were unread: the connections are reset, not closed.
        if status == 0 or not any(word in told for word in ("ConnectionResetError", "BrokenPipeError", "not connected")):
            raise Failure(f"round {number}: ended with {status}: {told[-500:]}")


def crowd(build):
    """More clients than the accept queue has room for: those still connecting come back connecting, and all are accepted."""
    run = Run(build)
    run.start(waiting=6)
    before = run.look()
    done = run.checkpoint(run.pid)
    expect(done.returncode in (0, 3), done)
    run.as_before(before, "after a snapshot")
    run.kill_all()
    run.process, run.pid = run.restore(1)
    run.ends_well()


class Outside:
    """A server that is no member of the job, with one connection."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def accept(self):
        self.connection, _ = self.listener.accept()
        if self.connection.recv(5, socket.MSG_WAITALL) != b"hello":
            raise Failure("another greeting")
        self.connection.sendall(b"from outside")

    def leave(self, by_reset):
        if by_reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def outside_leaves(build):
    """A process outside closes or resets its connection while a snapshot is taken: the program sees that as it would without one,
    and its other connections are as they were."""
    chance = random.Random(5)
    for number in range(10):
        run, outside, by_reset, asked = Run(build), Outside(), number % 2 == 1, []
        run.start(more=[f"port={outside.port}"])
        outside.accept()
        time.sleep(0.1)
        before = run.look()
        asking = threading.Thread(target=lambda run=run, asked=asked: asked.append(run.checkpoint(run.pid)))
        asking.start()
        time.sleep(chance.random() * 0.12)
        outside.leave(by_reset)
        asking.join()
        expect(asked[0].returncode in (0, 3), asked[0])
        for looked in before:
            looked.pop("outside", None)
        run.as_before(before, f"round {number}")
        run.ends_well()
        wanted = f"from outside, {'reset' if by_reset else 'the end'}"
        if not run.says(wanted):
            raise Failure(f"round {number}: not '{wanted}': {(run.work / 'out').read_text()}")


def outside_has_left(build):
    """A process outside has closed its connection before the snapshot: what it sent and its end are there after a restore, though that
    process is not."""
    run, outside = Run(build), Outside()
    run.start(more=[f"port={outside.port}"])
    outside.accept()
    outside.leave(False)
    time.sleep(0.1)
    done = run.checkpoint(run.pid)
    expect(done.returncode in (0, 3), done)
    run.kill_all()
    outside.listener.close()
    run.process, run.pid = run.restore(1)
    run.ends_well()
    wanted = "from outside, the end" if done.returncode == 0 else "from outside, reset"
    if not run.says(wanted):
        raise Failure(f"not '{wanted}': {(run.work / 'out').read_text()}, {done.stderr}")


def each_step(build):
    """The writer is killed at each step of a snapshot that the library's log tells of: whatever has happened by then, nothing is
    different for who goes on."""
    run = Run(build)
    run.start(GPUCKPT_LOG="debug")
    log = run.work / "err"
    before = run.look()
    expect(run.checkpoint(run.pid).returncode == 0, "a snapshot failed by itself")
    steps = len(log.read_text().splitlines())
    if steps < 5:
        raise Failure(f"the log tells of {steps} steps")
    codes = []
    # On a busy machine all may come too late, again and again.
    for step in [step for _ in range(10) for step in range(1, steps + 1)]:
        if len(codes) >= steps and not set(codes) <= {0, 3}:
            break
        begin, result = len(log.read_text().splitlines()), []
        asking = threading.Thread(target=lambda result=result: result.append(run.checkpoint(run.pid)))
        asking.start()
        while asking.is_alive() and len(log.read_text().splitlines()) < begin + step:
            time.sleep(0.0005)
        for writer in writers_of(run):
            kill(writer)
        asking.join()
        codes.append(result[0].returncode)
        run.as_before(before, f"after a snapshot that ended with {codes[-1]} at step {step} of {steps}")
    if set(codes) <= {0, 3}:
        raise Failure(f"no snapshot failed: {codes}")
    run.taken_and_restored()
    run.ends_well()


def wait_for_port(port):
    """A listener there, as soon as the killed processes have let go of the port."""
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
            time.sleep(0.05)


def listening_port_taken(build):
    """A stranger listens where the job did: the restore is refused in one clear sentence, and possible when the stranger has gone."""
    run = Run(build)
    run.start()
    before = run.look()
    name = before[1]["idle"]["name"]
    port = int(name.split(",")[1].strip(" )"))
    done = run.checkpoint(run.pid)
    expect(done.returncode == 0, done)
    run.kill_all()
    stranger = wait_for_port(port)
    try:
        run.restore(1)
        raise Failure("restored, though a stranger has its port")
    except Failure as failure:
        if "instead of being restored" not in str(failure):
            raise
    told = (run.work / "restore.err").read_text()
    if f"TCP port {port}, which the program had, cannot be taken here" not in told:
        raise Failure(f"refused by other words: {told}")
    stranger.close()
    run.process, run.pid = run.restore(2)
    run.ends_well()


CASES = {case.__name__: case for case in (nothing, reset, refused_late, writer_killed, each_step, no_room, member_killed, crowd, listening_port_taken,
                                      outside_leaves, outside_has_left)}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(connections_test.main(CASES))
