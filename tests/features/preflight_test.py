#!/usr/bin/env python3
"""What could not be restored is told when the snapshot is taken, and nothing hangs: preflight_test.py CASE [--build DIR]"""
import argparse
import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import features_test
from features_test import Failure

sys.path.insert(0, str(features_test.Run.SOURCE.parent / "trees"))
import family  # noqa: E402

PROGRAM = """
import os, time
held = open("held")
print("ready", flush=True)
while not os.path.exists("more"): time.sleep(0.005)
more = open("extra")
print("more", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
print("survived", flush=True)
"""


class Run(features_test.Run):
    def __init__(self, build, flavour="root"):
        super().__init__("preflight", flavour, build)
        for name in ("held", "extra"):
            (self.work / name).write_text(name)

    limit = None  # of descriptors, for a restore

    def wrapped(self, command):
        limited = ["prlimit", f"--nofile={self.limit}"] if self.limit else []
        return [*limited, *super().wrapped(command)]

    def start(self, *command, **env):
        command = command or (sys.executable, "-c", PROGRAM)
        process = self.popen(command, "out", "err", LD_PRELOAD=str(self.build / "lib" / "libgpuckpt.so"), **env)
        self.until(lambda: self.says("ready"), process, "before it was ready")
        return process

    def cli(self, *arguments, **env):
        return subprocess.run(self.wrapped([self.build / "bin" / "gpuckpt", *arguments]), cwd=self.work, stdin=subprocess.DEVNULL,
                              env=self.environment(**env), capture_output=True, text=True, timeout=90, **self.identity())


def expect(good, what):
    if not good:
        raise Failure(what if isinstance(what, str) else f"exit {what.returncode}: {what.stdout}{what.stderr}")


def warned(build):
    """A snapshot that this machine could not restore exits 0; verify and --dry-run do not ask what a restore asks."""
    run = Run(build)
    process = run.start()
    done = run.checkpoint(process.pid)
    expect(done.returncode == 0, done)
    reference = f"{run.work}/store@{done.stdout.strip()}"
    expect(run.cli("verify", reference).returncode == 0, "a good snapshot is not whole")
    os.rename(run.work / "held", run.work / "aside")  # (the kernel knows it under this name now)
    (run.work / "aside").write_text("of another length")
    fresh = run.checkpoint(process.pid)
    expect(fresh.returncode == 0, fresh)
    for verb, code in (("verify", 3), ("restore", 12)):
        done = run.cli(verb, reference, *(["--dry-run"] if verb == "restore" else []))
        expect(done.returncode == code and "held was open and is not here" in done.stderr, done)
    # The file of a mapping that is not there any more for whoever restores it.
    process.kill()
    process.wait()
    return run


def no_ids(build):
    """A job of several processes is snapshotted without a word where it cannot be restored."""
    if os.getuid() != 0:
        return Run(build)
    run = Run(build, "sandbox")
    process = run.start(build / "tests" / "trees" / "pair")
    done = run.checkpoint(process.pid)
    expect(done.returncode == 3 and "needs its old process ids" in done.stderr and done.stdout.strip(), done)
    expect("needs its old process ids" in (run.work / "err").read_text() or "warning" in done.stderr, done)
    doctor = run.cli("doctor")
    expect("programs of several processes could not be restored here" in doctor.stdout + doctor.stderr, doctor)
    started = run.cli("run", "--", "/bin/true")
    expect(started.returncode == 0 and "starts other processes" in started.stderr, started)
    run.release()
    process.wait(30)
    return run


RECEIVER = """
import os, socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
open("port", "w").write(str(s.getsockname()[1]))
while not os.path.exists("sent"): time.sleep(0.005)
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
s.settimeout(0.5)
got = []
try:
    while True: got.append(s.recvfrom(100))
except TimeoutError: pass
open("got", "w").write(repr(got))
print("survived", flush=True)
"""


def datagrams(build):
    """An ordinary user's restore drops a datagram whose sender is another program that is there still, and the snapshot said nothing."""
    run = Run(build, "nobody")
    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    process = run.popen(("/usr/bin/python3", "-c", RECEIVER), "out", "err", LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: (run.work / "port").exists() and (run.work / "port").read_text(), process, "before it was bound")
    outside.sendto(b"one", ("127.0.0.1", int((run.work / "port").read_text())))
    number = outside.getsockname()[1]
    (run.work / "sent").touch()
    run.until(lambda: run.says("ready"), process, "before it was ready")
    done = run.checkpoint(process.pid)
    reference = f"{run.work}/store@{done.stdout.strip()}"
    text = f"a restore drops 1 unread datagrams (UDP) from 127.0.0.1:{number}"
    expect(done.returncode == 3 and text in done.stderr, done)
    run.kill(process)
    checked = run.cli("restore", "--dry-run", reference)
    expect(checked.returncode == 0 and text in checked.stderr, checked)
    outside.close()  # where its address is free it can be had again
    checked = run.cli("restore", "--dry-run", reference)
    expect(checked.returncode == 0 and text not in checked.stderr, checked)
    restored = run.popen([build / "bin" / "gpuckpt", "restore", reference], "out2", "err2")
    run.release()
    restored.wait(30)
    got = (run.work / "got").read_text()
    expect(got == repr([(b"one", ("127.0.0.1", number))]), f"it got {got}")
    return run


def resume(build):
    """--resume auto stays with a snapshot that cannot be restored, loops, or begins anew without being asked."""
    run = Run(build)
    process = run.start(GPUCKPT_JOB="j")
    taken = [run.checkpoint(process.pid).stdout.strip()]
    (run.work / "more").touch()
    run.until(lambda: run.says("more"), process, "before it had more")
    taken.append(run.checkpoint(process.pid).stdout.strip())
    taken.append(run.checkpoint(process.pid).stdout.strip())
    expect(all(taken), f"snapshots: {taken}")
    run.kill(process)
    (run.work / "extra").write_text("another one")
    command = ["run", "--job", "j", "--store", run.work / "store", "--resume", "auto", "--", "/bin/false"]
    run.release()
    done = run.cli(*command)
    expect(done.returncode == 0, done)
    told = re.findall(r"taking the next older snapshot, (\S+)", done.stderr)
    expect(told == taken[1::-1], done)
    (run.work / "held").unlink()
    done = run.cli(*command)
    expect(done.returncode == 125 and done.stderr.count("taking the next older") == 2, done)
    expect("there is no older snapshot of the job: nothing was restored" in done.stderr, done)
    return run


def hung(build):
    """A restore that waits for ever for another process does not say for what."""
    run = Run(build)
    process = run.start()
    done = run.checkpoint(process.pid)
    expect(done.returncode == 0, done)
    run.kill(process)
    holder = os.open(run.work / "held", os.O_RDWR)
    fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    begin = time.monotonic()
    done = run.cli("restore", run.work / "store", GPUCKPT_STEP_LIMIT="1")
    seconds = time.monotonic() - begin
    expect(done.returncode == 125 and "hangs while making its descriptors" in done.stderr, done)
    expect(f"process {process.pid} " in done.stderr and seconds < 20, f"{seconds} s: {done.stderr}")
    expect(f"process {os.getpid()} (" in done.stderr and "did not give it back in 1 s" in done.stderr, done)
    os.close(holder)
    process, pid = run.restore(1)
    run.release()
    (run.work / "more").touch()
    run.finish(process)
    return run


def again(build):
    """A restore writes a file that another process of the job reads, and the next restore finds it changed."""
    run = Run(build)
    process = run.start(build / "tests" / "trees" / "shared_file_read")
    done = run.checkpoint(process.pid)
    expect(done.returncode == 0, done)
    for number in (1, 2):
        family.kill_family(process, f"GPUCKPT_STORE={run.work}/store")
        process, _ = run.restore(number)
    run.release()
    run.finish(process)
    return run


def terminals_of(pid):
    """The numbers of the pseudo terminals whose masters the process has open."""
    found = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            found |= {line.split()[1] for line in info.read_text().splitlines() if line.startswith("tty-index:")}
        except OSError:
            pass  # (the folder's own)
    return found


def name_taken(build):
    """Another process has the pseudo terminal's number: whoever restores reads its new name, the program's own files do not."""
    run = Run(build)
    process = run.start(build / "tests" / "features" / "fd_pty")
    taken = terminals_of(process.pid)
    done = run.checkpoint(process.pid, "--stop")
    expect(done.returncode == 0, done)
    run.until(lambda: process.poll() is not None, process, "after checkpoint --stop")
    held = []
    # (Programs of other tests may have taken a number meanwhile, until they end.)
    deadline = time.monotonic() + 60
    while not taken <= terminals_of(os.getpid()):
        expect(time.monotonic() < deadline, f"pseudo terminals {taken} are not to be had")
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
        time.sleep(0.01 * len(held))
    process, _ = run.restore(1)
    run.release()
    run.finish(process)
    for fd in held:
        os.close(fd)
    said, own = ((run.work / name).read_text() for name in ("restore.err", "err"))
    expect(re.search(r"warning: /dev/pts/\d+ is /dev/pts/\d+ now", said), f"the new name is not told: {said}")
    expect("/dev/pts" not in own, f"told to the program: {own}")
    return run


def capabilities(build):
    """Whoever restores has fewer than the program had."""
    run = Run(build)
    process = run.start()
    done = run.checkpoint(process.pid, "--stop")
    expect(done.returncode == 0, done)
    run.until(lambda: process.poll() is not None, process, "after checkpoint --stop")
    fewer = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]
    if os.getuid() != 0 or subprocess.run([*fewer, "true"], capture_output=True).returncode != 0:
        print("skipped: only root has any, and setpriv may take them away")
        sys.exit(77)
    again = run.popen([*fewer, build / "bin" / "gpuckpt", "restore", f"{run.work}/store@latest"], "restore", "restore.err")
    for name in ("more", "go_on"):
        (run.work / name).touch()
    run.finish(again)
    said, own = ((run.work / name).read_text() for name in ("restore.err", "err"))
    expect("had capabilities that the user who restores it does not have: permitted 2000" in said, f"not told: {said}")
    expect("capabilities" not in own, f"told to the program: {own}")
    return run


OUTSIDE = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL, close_fds=True)
time.sleep(0.2)
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
if os.path.exists("was_restored"):
    assert os.read(int(sys.argv[1]), 1) == b"", "its pipe is not closed at the other end"
child.kill()
print("survived", flush=True)
"""


def outside(build):
    """What comes back closed, or not at all, is not told: a pipe that the program was started with, a child without the library."""
    run = Run(build)
    theirs, ours = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", OUTSIDE, str(theirs)], pass_fds=[theirs], stdin=subprocess.DEVNULL, stdout=open(run.work / "out", "wb"),
                               stderr=open(run.work / "err", "wb"), cwd=run.work, start_new_session=True,
                               env=run.environment(LD_PRELOAD=str(build / "lib" / "libgpuckpt.so")))
    run.started.append(process)
    run.until(lambda: run.says("ready"), process, "before it was ready")
    refused = run.checkpoint(process.pid)
    expect(refused.returncode == 14 and "(sleep), a child of the program, runs without gpuckpt's library" in refused.stderr, refused)
    done = run.checkpoint(process.pid, "--children", "able")
    told = [line for line in done.stderr.splitlines() if "warning:" in line]
    expect(done.returncode == 3 and len(told) == 2, done)
    expect(f"descriptor {theirs}, which the program" in done.stderr and "closed at the other end" in done.stderr, done)
    expect("(sleep) runs without gpuckpt's library: it and its children are not part of the snapshot" in done.stderr, done)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    run.kill(process)
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    (run.work / "was_restored").touch()
    process, _ = run.restore(1)
    run.release()
    run.finish(process)
    os.close(ours), os.close(theirs)
    return run


WRITES = """
import mmap, os, socket, sys, tempfile, time
log = open("log", "w")
database = open("database", "w+b", buffering=0)
database.write(b"a" * 8192)
shared = mmap.mmap(database.fileno(), 8192)
nameless = tempfile.TemporaryFile(dir=".")
nameless.write(b"kept")
nameless.flush()
door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def work(text):
    log.write(text + "\\n"), log.flush()
    shared[:8] = text.ljust(8).encode()
work("one")
print("ready", flush=True)
while not os.path.exists("more"): time.sleep(0.005)
if not os.path.exists("was_restored"):
    work("two")
    print("more", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
assert shared[:8] == b"one     " and os.pread(nameless.fileno(), 9, 0) == b"kept", "its memory or its file are not as they were"
work("three")
print("survived", flush=True)
"""


def failed(build):
    """A restore that fails, early or with half of its files put back, spoils the next one, or takes data with it."""
    for stored in (), ("--files-in-snapshot",):
        run = Run(build)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        command = [sys.executable, "-c", WRITES, str(port)]
        process = run.start(*command, **({"GPUCKPT_FILES": "open"} if stored else {}))
        done = run.checkpoint(process.pid)
        expect(done.returncode == 0, done)
        (run.work / "more").touch()
        run.until(lambda: run.says("more"), process, "before it had more")
        run.kill(process)
        # A file is missing; the port is somebody else's; a step of it hangs.
        attempts = 0
        os.rename(run.work / "database", run.work / "aside")
        if not stored:
            failure = run.cli("restore", run.work / "store")
            expect(failure.returncode == 125 and "database" in failure.stderr, failure)
            attempts += 1
        os.rename(run.work / "aside", run.work / "database")
        with socket.create_server(("127.0.0.1", port)):
            for _ in range(2):
                failure = run.cli("restore", run.work / "store")
                expect(failure.returncode == 125 and "ddress already in use" in failure.stderr, failure)
                attempts += 1
        (run.work / "was_restored").touch()
        process, _ = run.restore(1)
        run.release()
        run.finish(process)
        expect((run.work / "log").read_text() == "one\nthree\n", f"the log after {attempts} failures: {(run.work / 'log').read_text()!r}")
        # What came after the snapshot is aside, once.
        later = [f.read_text() for f in run.work.glob("log.gpuckpt-*")]
        expect(any("two" in text for text in later), f"the later lines are lost: {later}")
        if not stored:
            subprocess.run(["rm", "-rf", str(run.work)], check=True)
    return run


LEASED = """
import fcntl, os, signal, time
broken = []
signal.signal(signal.SIGIO, lambda *_: broken.append(1))
open("leased", "wb").write(b"one")
leased = os.open("leased", os.O_RDWR)
fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
assert os.pread(leased, 9, 0) == b"one", "its file is not as it was"
print("lease", fcntl.fcntl(leased, fcntl.F_GETLEASE) == fcntl.F_WRLCK, "broken", len(broken), flush=True)
print("survived", flush=True)
"""


def leased(build):
    """--files-in-snapshot opens a file that the program has a lease on, which breaks it: refused by name, and the lease stays."""
    run = Run(build)
    process = run.start(sys.executable, "-c", LEASED, GPUCKPT_FILES="open")
    begin = time.monotonic()
    done = run.checkpoint(process.pid)
    expect(done.returncode == 14 and f"{run.work}/leased is to be in the snapshot" in done.stderr and "has a lease" in done.stderr, done)
    expect(time.monotonic() - begin < 10, "refused late")
    run.release()
    run.finish(process)
    expect(run.says("lease True broken 0"), (run.work / "out").read_text())
    return run


OWN_FILE = """
import time
log = open("mine", "w")
print("ready", flush=True)
while True: time.sleep(0.1)
"""


def foreign_file(build):
    """A file of another user by now, which --files-in-snapshot would put back, cannot be opened again: known only in the middle of a restore."""
    if os.getuid() != 0:
        print("skipped: only root can give a file away")
        sys.exit(77)
    for files in ({}, {"GPUCKPT_FILES": "open"}):
        run = Run(build, "nobody")
        process = run.start("/usr/bin/python3", "-c", OWN_FILE, **files)
        os.chown(run.work / "mine", 0, 0)
        done = run.checkpoint(process.pid)
        expect(done.returncode == 3 and f"{run.work}/mine cannot be opened as the program had it" in done.stderr, done)
        run.kill(process)
        done = run.cli("restore", "--dry-run", run.work / "store")
        expect(done.returncode == 12 and f"{run.work}/mine cannot be opened" in done.stderr, done)
        if not files:
            subprocess.run(["rm", "-rf", str(run.work)], check=True)
    return run


WRITER = """
import os, time
files = [os.open("held", os.O_RDWR), os.open("extra", os.O_RDONLY)]
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
assert [os.read(f, 9) for f in files] == [b"held", b"extra"], "its files are not as they were"
print("survived", flush=True)
"""
HOLDER = """
import fcntl, os, signal, sys, time
asked = []
signal.signal(signal.SIGIO, lambda *_: asked.append(1))
files = [os.open(name, os.O_RDWR) for name in ("held", "extra")]
for file in files: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open("leased", "w").close()
while not asked: time.sleep(0.01)
time.sleep(1)
for file in files: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
time.sleep(60)
"""


def foreign_lease(build):
    """Another process has leases on files that the program had open: the restore waits for their return without a word."""
    for flavour in ("root", "nobody") if os.getuid() == 0 else ("nobody",):
        run = Run(build, flavour)
        for name in ("held", "extra"):
            os.chown(run.work / name, *(run.identity().get(n, -1) for n in ("user", "group")))
        process = run.start("/usr/bin/python3", "-c", WRITER)
        done = run.checkpoint(process.pid)
        expect(done.returncode == 0, done)
        run.kill(process)
        holder = run.popen(["/usr/bin/python3", "-c", HOLDER], "holder.out", "holder.err")
        run.until(lambda: (run.work / "leased").exists(), holder, "before it had the leases")
        begin = time.monotonic()
        process, _ = run.restore(1)
        took = time.monotonic() - begin
        run.release()
        run.finish(process)
        said = "".join(f.read_text() for f in run.work.glob("*err*"))
        expect(f"waiting for process {holder.pid} (" in said and f"its lease on {run.work}/" in said, f"nobody was named: {said}")
        expect(took < 20, f"restored after {took:.0f} s only")
        holder.kill()
        holder.wait()
        if flavour == "root":
            subprocess.run(["rm", "-rf", str(run.work)], check=True)
    return run


def no_shm(build):
    """Where /dev/shm is full, or programs may not be run from it, programs that do not use it cannot be snapshotted or restored."""
    if "GPUCKPT_TEST_NO_SHM" not in os.environ:
        again = ["unshare", "-m", sys.executable, os.path.abspath(__file__), "no_shm", "--build", str(build)]
        if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            print("skipped: only root can mount another /dev/shm")
            sys.exit(77)
        done = subprocess.run(again, env={**os.environ, "GPUCKPT_TEST_NO_SHM": "1"}, capture_output=True, text=True, timeout=100)
        expect(done.returncode == 0, done)
        return Run(build)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,noexec", "none", "/dev/shm"], check=True)
    with open("/dev/shm/full", "wb", buffering=0) as full:
        try:
            while full.write(bytes(4096)):
                pass
        except OSError:
            pass
    names = ["fd_memfd", "fd_memfd_exec", "fd_unlinked", "memory_files", "memory_flags", "thread_many", "socket_names"]
    done = subprocess.run([sys.executable, features_test.Run.SOURCE / "features_test.py", "root", *names, "--build", build],
                          capture_output=True, text=True)
    expect(done.returncode == 0, done)
    return Run(build)


SEGMENTS = """
import ctypes, os, time
name = "/dev/shm/gpuckpt-test-%d" % os.getpid()
child = os.fork()
if child == 0:  # a server that has dropped its rights, below a process of root's
    if os.getuid() == 0:
        os.setgroups([]), os.setgid(USER), os.setuid(USER)
    os.umask(0)
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o660)
    os.ftruncate(fd, 4096)
    map = ctypes.CDLL(None).mmap  # (Python's keeps a descriptor)
    map.restype, map.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    memory = map(None, 4096, 3, 1, fd, 0)
    os.close(fd)
    ctypes.memmove(memory, b"text", 4)
    print("ready", flush=True)
    while not os.path.exists("/dev/shm/go-on-%d" % os.getppid()): time.sleep(0.005)
    with open(name, "r+b") as again: assert again.read(4) == b"text"
    os.unlink(name)
    os._exit(0)
while not os.path.exists("go_on"): time.sleep(0.005)
mark = "/dev/shm/go-on-%d" % os.getpid()
open(mark, "w").close()
status = os.waitpid(child, 0)[1]
assert status == 0, status
os.unlink(mark)
print("survived", flush=True)
"""


def shm_made_anew(build):
    """Shared memory with a name that is gone belongs to its user again, and has its mode, whoever restores it with whatever umask."""
    run = Run(build)
    process = run.start(sys.executable, "-c", SEGMENTS.replace("USER", str(features_test.NOBODY)), GPUCKPT_USERS="trust")
    name = Path(f"/dev/shm/gpuckpt-test-{process.pid}")
    before = name.stat()
    done = run.checkpoint(process.pid)
    expect(done.returncode == 0, done)
    family.kill_family(process)
    name.unlink()
    os.umask(0o077)
    process, _ = run.restore(1)
    after = name.stat()
    told = [(s.st_uid, s.st_gid, oct(s.st_mode)) for s in (before, after)]
    expect(told[0] == told[1], f"it belonged to {told[0]}, and now to {told[1]}")
    run.release()
    run.finish(process)
    return run


PAIRS = """
import os, socket, time
ends = [socket.socketpair() for i in range(150)]
pipes = [os.pipe() for i in range(60)]
terminals = [os.openpty() for i in range(40)]
gone = [socket.socketpair() for i in range(100)]
for a, b in gone: b.close()
child = os.fork() if SEVERAL else None
if child != 0: print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
if not child:
    for a, b in ends: a.send(b"x")
    for a, b in pipes: os.write(b, b"x")
    for a, b in terminals: os.write(b, b"x")
if child == 0: os._exit(0)
if child: assert os.waitpid(child, 0)[1] == 0
for a, b in ends: assert b.recv(9) == b"x"
for a, b in pipes + terminals: assert os.read(a, 9) == b"x"
for a, b in gone: assert a.recv(9) == b""
print("survived", flush=True)
"""


def descriptors(build):
    """A restore that may have too few descriptors says how many it needs, before it begins; with as many it goes well."""
    for several in (False, True):
        run = Run(build, "nobody" if os.getuid() == 0 else "root")  # root may have any number
        process = run.start("/usr/bin/python3", "-c", PAIRS.replace("SEVERAL", str(several)))
        done = run.checkpoint(process.pid)
        expect(done.returncode == 0, done)
        family.kill_family(process)
        reference = f"{run.work}/store@{done.stdout.strip()}"
        run.limit = 750
        done = run.cli("restore", reference)
        wanted = r"a restore needs (\d+) descriptors, and may have 750 \(ulimit -Hn\)"
        needed = re.search(wanted, done.stderr)
        expect(done.returncode == 125 and needed, done)
        run.limit = int(needed[1])
        process, _ = run.restore(1)
        run.release()
        run.finish(process)
    # Where the process that started it may have no more either, the snapshot says so at once.
    resource.setrlimit(resource.RLIMIT_NOFILE, (750, 750))
    for several in (False, True):
        run = Run(build, "nobody" if os.getuid() == 0 else "root")
        process = run.start("/usr/bin/python3", "-c", PAIRS.replace("SEVERAL", str(several)))
        done = run.checkpoint(process.pid)
        expect(done.returncode == 3 and re.search(wanted, done.stderr), done)
        run.release()
        run.finish(process)
    return run


WAITS = """
import os, time
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.005)
print("survived", flush=True)
"""


def filters(build):
    """A filter that was set before an exec is not told of, or is lost by a restore under fewer."""
    sandbox = build / "tests" / "features" / "support" / "sandbox"
    for wrapper in ([sandbox], [sandbox, sandbox]):
        run = Run(build)
        process = run.start(*wrapper, sys.executable, "-c", WAITS)
        done = run.checkpoint(process.pid)
        expect(done.returncode == 3 and "was set before it was executed" in done.stderr, done)
        family.kill_family(process)
        reference = f"{run.work}/store@{done.stdout.strip()}"
        restore = [build / "bin" / "gpuckpt", "restore", reference]
        done = subprocess.run([*wrapper[1:], *restore], cwd=run.work, env=run.environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=90)
        expect(done.returncode == 125 and "restore inside the same kind of sandbox" in done.stderr, done)
        process = run.popen([*wrapper, *restore], "restore", "restore.err")
        run.release()
        run.finish(process)
    return run


CASES = {c.__name__: c for c in (warned, no_ids, datagrams, resume, hung, again, name_taken, capabilities, outside, failed, leased, foreign_lease, foreign_file, no_shm, descriptors, filters, shm_made_anew)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--build", type=Path, default=features_test.Run.SOURCE.parents[1] / "build")
    options = parser.parse_args()
    run = CASES[options.case](options.build.resolve())
    for process in run.started:
        if process.poll() is None:
            process.kill()
            process.wait()
    subprocess.run(["rm", "-rf", str(run.work)], check=True)
    print("told")


if __name__ == "__main__":
    main()
