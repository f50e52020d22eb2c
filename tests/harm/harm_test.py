#!/usr/bin/env python3
"""A snapshot harms no program: harm_test.py CASE [--build DIR]

  sanitizers   programs of AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer are restored
  tools        those of ThreadSanitizer, and under valgrind, strace and gdb, are refused by name and go on
  seccomp      so are programs that confine themselves
  stuck        a thread that cannot be stopped freezes nobody, and is named
  own_environment  a program's own functions for its environment are not called
  own_signals  a program's own SIGUSR1 is its own business; one from outside asks for a snapshot
  own_group    no process of ours is in the program's process group while a snapshot is being written
  ends         a program that ends waits for the snapshot that was asked for
  io_uring     programs find no io_uring, unless they shall
  limits       what a limit forbids is named at once, or done in another way
  stores       so is what a store does not allow
  users        a program of another user is refused at once with their names; of several users' is told
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "features"), str(HERE.parent / "trees")]
from family import family  # noqa: E402
from features_test import Failure, Run, ordinary_user  # noqa: E402

SKIPPED = 77


class Skipped(Exception):
    pass


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def expect(condition, what):
    if not condition:
        raise Failure(what)


def program(run, name):
    path = run.build / "tests" / "harm" / name
    if not path.exists():
        raise Skipped(f"{name} was not built here")
    return path


def start(run, command, **env):
    process = run.popen(command, "out", "err", LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"), **env)
    run.until(lambda: run.says("ready"), process, "before it was ready")
    return process


def goes_on(run, process):
    run.release()
    run.finish(process)


def comes_back(run, process):
    done = run.checkpoint(process.pid)
    expect(done.returncode == 0, f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
    run.kill(process)
    process, _ = run.restore(1)
    run.release()
    run.finish(process)


def fails(run, pid, words, code=14, seconds=5.0, options=()):
    """The snapshot fails at once (all times are doubled on a busy machine), and says why."""
    begin = time.monotonic()
    done = run.checkpoint(pid, *options)
    took = time.monotonic() - begin
    expect(done.returncode == code and all(w in done.stderr for w in words),
           f"does not fail as it should: exit {done.returncode}: {done.stderr.strip()}")
    expect(took < seconds, f"failed after {took:.1f} s only")


def snapshots(run):
    done = subprocess.run([run.build / "bin" / "gpuckpt", "list", "--json", run.work / "store"], env=run.environment(),
                          capture_output=True, text=True, timeout=60)
    return len(json.loads(done.stdout)) if done.returncode == 0 else 0


def tell(run):
    """For a program that may not look for a file any more."""
    fifo = os.open(run.work / "go_byte", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fifo, b"x")
    os.close(fifo)


def sanitizers():
    for name in ("address", "leak", "undefined"):
        def go(run):
            # gcc's runtime wants to be the first library of all.
            comes_back(run, start(run, [program(run, f"checked_{name}")], ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0",
                                  LSAN_OPTIONS="detect_leaks=0"))
        yield name, go


def tools():
    def thread(run):
        process = start(run, [program(run, "checked_thread")])
        fails(run, process.pid, ["ThreadSanitizer"])
        goes_on(run, process)

    def tracer(run):
        process = start(run, [program(run, "tracer")])
        fails(run, process.pid, ["is traced by process", "of the same job"])
        goes_on(run, process)

    def under(*tool, words, asked=None):
        def go(run):
            if not shutil.which(tool[0]):
                raise Skipped(f"{tool[0]} is not installed")
            process = start(run, [*tool, program(run, "ordinary")])
            fails(run, process.pid, words)
            run.release()
            expect(process.wait(60) == 0 and run.says("survived"), "did not go on")
        return go

    def own_malloc(run):
        """It does not work before main, and the program is not ended by a call of ours."""
        process = start(run, [program(run, "own_malloc")])
        fails(run, process.pid, ["malloc of its own"])
        goes_on(run, process)

    yield "own_malloc", own_malloc
    yield "thread_sanitizer", thread
    yield "tracer", tracer
    yield "valgrind", under("valgrind", "-q", words=["valgrind"])
    yield "strace", under("strace", "-f", "-o", "trace", words=["is traced by process"])
    yield "gdb", under("gdb", "-q", "-batch", "-ex", "run", "--args", words=["is traced by process"])


def seccomp():
    for kind, words in {"strict": ["seccomp"], "strict_raw": ["strict seccomp"], "strict_child": ["strict seccomp"],
                        "kill": ["system call filter"], "errno": ["system call filter"]}.items():
        def go(run, kind=kind, words=words):
            process = start(run, [program(run, "confined"), kind])
            fails(run, process.pid, words)
            if kind not in ("strict_raw", "strict_child"):
                os.kill(process.pid, signal.SIGUSR1)
                time.sleep(0.1)
            tell(run)
            expect(process.wait(30) == 0 and run.says("survived"), f"ended with {process.returncode}")
        yield kind, go


def stuck():
    def vfork(run):
        process = start(run, [program(run, "vfork_waits")])
        fails(run, process.pid, ["vfork"], code=15)
        goes_on(run, process)

    yield "vfork", vfork

    def aio(run):
        """To find out whether requests are on their way turns the ring of their completions, in which the program finds others then."""
        process = start(run, [program(run, "aio_in_flight")])
        for _ in range(5):
            done = run.checkpoint(process.pid)
            expect(done.returncode == 0 or done.returncode == 14 and "AIO context" in done.stderr, f"exit {done.returncode}: {done.stderr.strip()}")
        goes_on(run, process)

    yield "aio", aio

    def vfork_below(run):
        """The one that waits is no first process, and nobody waits for its answer until the time is over."""
        process = start(run, [program(run, "vfork_waits_below")])
        fails(run, process.pid, ["of the job", "vfork"])
        goes_on(run, process)

    yield "vfork_below", vfork_below

    def chain(run):
        """One may be caught, by chance; a refusal names one of them, or its session, and not the pipe that they have."""
        process = start(run, [program(run, "daemon_chain")])
        for _ in range(3):
            done = run.checkpoint(process.pid, "--timeout", "2s")
            expect(done.returncode in (0, 3, 14, 15) and "not part of the snapshot" not in done.stderr,
                   f"exit {done.returncode}: {done.stderr.strip()}")
        goes_on(run, process)

    yield "daemon_chain", chain


def own_environment():
    yield "own_environment", lambda run: comes_back(run, start(run, [program(run, "own_environment")]))


def own_signals():
    def go(run):
        process = start(run, [program(run, "own_signals")])
        expect(not (run.work / "store").exists(), "a snapshot that nobody asked for")
        os.kill(process.pid, signal.SIGUSR1)
        run.until(lambda: snapshots(run) == 1, process, "instead of a snapshot for a signal from outside")
        goes_on(run, process)
        expect(snapshots(run) == 1, "more snapshots than were asked for")

    yield "own_signals", go


ALONE_IN_GROUP = """
import os
memory, group, others, looks = os.urandom(1 << 20) * 192, os.getpgrp(), 0, 0
print("ready", flush=True)
while not os.path.exists("go_on"):
    count = 0
    for name in os.listdir("/proc"):
        try:
            count += name.isdigit() and os.getpgid(int(name)) == group
        except ProcessLookupError:
            pass
    others, looks = others + (count > 1), looks + 1
# (One that starts the writer is in the group until it runs for the first time.)
print("survived" if others * 6 < looks and looks > 10 else f"others in its group in {others} of {looks} looks", flush=True)
"""


def own_group():
    def go(run):
        process = start(run, ["/usr/bin/python3", "-c", ALONE_IN_GROUP], GPUCKPT_COPY="clone")
        done = run.checkpoint(process.pid)
        expect(done.returncode == 0, f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
        goes_on(run, process)

    yield "own_group", go


def ends():
    for how in ("return", "jump", "exit", "_exit", "quick_exit", "syscall"):
        def go(run, how=how):
            process = start(run, [program(run, "ends"), how])
            done = run.checkpoint(process.pid)
            expect(done.returncode == 0, f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
            expect(process.wait(30) == 5, f"ended with {process.returncode}")
            restored = subprocess.run([run.build / "bin" / "gpuckpt", "restore", f"{run.work / 'store'}@latest"],
                                      env=run.environment(), cwd=run.work, capture_output=True, text=True, timeout=60)
            expect(restored.returncode == 5, f"restored, it ends with {restored.returncode}: {restored.stderr}")
        yield how, go


def io_uring():
    def without(run):
        process = start(run, [program(run, "ring_or_not")])
        expect((run.work / "way").read_text() == "none\n", "has a ring")
        comes_back(run, process)

    def wanted(run):
        process = start(run, [program(run, "ring_or_not")], GPUCKPT_IO_URING="on")
        if (run.work / "way").read_text() == "none\n":
            raise Skipped("there is no io_uring here")
        fails(run, process.pid, ["io_uring"])
        goes_on(run, process)

    yield "none", without
    yield "GPUCKPT_IO_URING", wanted


def under_limit(run, shell, name="ordinary"):
    return start(run, ["/bin/sh", "-c", f'{shell}; exec "$0"', program(run, name)])


PYTHON = """
import os, resource, sys, time
{}
print("ready", flush=True)
while not os.path.exists("go_on"): time.sleep(0.01)
print("survived", flush=True)
"""
ALL_DESCRIPTORS = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, HARD))
try:
    while True: os.dup(2)
except OSError: os.close(63)
time.sleep(0); os.path.exists("."); os.dup(2)
"""
ADDRESS_SPACE = """
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (8 << 20),) * 2)
"""
PROCESSES = """
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
"""
# A worker under the limit, as haproxy starts them.
PROCESSES_OF_A_CHILD = """
child = os.fork()
if child == 0:
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    while not os.path.exists("go_on"): time.sleep(0.01)
    os._exit(0)
while open(f"/proc/{child}/limits").read().split("Max processes")[1].split()[0] != "0": time.sleep(0.01)
"""


def limits():
    def lives(shell):
        return lambda run: comes_back(run, under_limit(run, shell))

    def fails_by(words, code=1, shell=None, script=None):
        def go(run):
            process = under_limit(run, shell) if shell else start(run, ["python3", "-c", PYTHON.format(script)])
            fails(run, process.pid, words, code)
            goes_on(run, process)
        return go

    def session_folder(run):
        gone = run.work / "gone"
        gone.mkdir(mode=0o777)
        process = start(run, [program(run, "ordinary")], GPUCKPT_SESSION_DIR=str(gone / "session"))
        gone.rmdir()
        comes_back(run, process)

    def long_session_folder(run):
        # The longest that is taken; a socket's address has no room for the name of a socket in it.
        folder = run.work / ("s" * (95 - len(str(run.work)) - 1))
        comes_back(run, start(run, [program(run, "ordinary")], GPUCKPT_SESSION_DIR=str(folder)))
        expect([f.name for f in run.work.iterdir() if f.name.startswith("s" * 8)] == [folder.name],
               "left a socket beside its session folder")

    yield "session_folder", session_folder
    yield "session_folder_long", long_session_folder
    yield "umask", lives("umask 0345")
    yield "file_size_soft", lives("ulimit -S -f 16")
    yield "file_size_hard", fails_by(["RLIMIT_FSIZE"], shell="ulimit -f 16")
    yield "descriptors", lambda run: comes_back(
        run, start(run, ["python3", "-c", PYTHON.format(ALL_DESCRIPTORS.replace("HARD", "256"))]))
    yield "descriptors_hard", fails_by(["RLIMIT_NOFILE"], code=14, script=ALL_DESCRIPTORS.replace("HARD", "64"))
    yield "few_descriptors", lives("ulimit -S -n 16")
    for most in 0, 3:
        yield f"descriptors_{most}", fails_by(["RLIMIT_NOFILE", f"is {most}"], code=14,
                                              script=f"resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))")
    yield "data", fails_by(["RLIMIT_DATA"], script="resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))")
    yield "address_space", fails_by(["RLIMIT_AS"], script=ADDRESS_SPACE)
    yield "processes", fails_by(["RLIMIT_NPROC"], script=PROCESSES)
    yield "processes_of_a_child", fails_by(["of the job", "RLIMIT_NPROC"], script=PROCESSES_OF_A_CHILD)

    def group_with_room(run, room):
        """What the snapshot starts is too much for pids.max at another moment each time: named, or done with less."""
        process = start(run, [program(run, "ordinary")])
        with control_group_of(process.pid) as group:
            (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + room))
            done = run.checkpoint(process.pid)
            expect(done.returncode == 0 or done.returncode == 1 and "pids.max" in done.stderr,
                   f"exit {done.returncode}: {done.stderr.strip()}")
            goes_on(run, process)

    for room in range(7):
        yield f"group_with_room_{room}", lambda run, room=room: group_with_room(run, room)


CHANGING_USER = """
import os, time
print("ready", flush=True)
while not os.path.exists("go_on"):
    for user in 65534, 0:
        os.seteuid(user)
        time.sleep(0.001)
print("survived", flush=True)
"""


@contextlib.contextmanager
def control_group_of(pid):
    """A control group of its own, with a limit on processes, for a process."""
    root = Path("/sys/fs/cgroup")
    root = root / "pids" if (root / "pids").is_dir() else root
    group = root / f"gpuckpt-test-{pid}"
    try:
        group.mkdir()
    except OSError as error:
        raise Skipped(f"no control group can be made here: {error}")
    try:
        if not (group / "pids.max").exists():
            raise Skipped("control groups do not count processes here")
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(left)
        group.rmdir()


def stores():
    def bad(prepare, words, code=1):
        def go(run):
            prepare(run.work / "store")
            if run.user is not None:
                subprocess.run(["chown", "-R", f"{run.user}:{run.user}", run.work], check=True)
            process = start(run, [program(run, "ordinary")])
            fails(run, process.pid, words, code)
            goes_on(run, process)
        return go

    def read_only(store):
        store.mkdir(mode=0o500)

    def full(store):
        store.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", store], capture_output=True).returncode != 0:
            raise Skipped("no file system can be mounted here")

    def full_store(run):
        try:
            bad(full, ["is full"])(run)
        finally:
            subprocess.run(["umount", "-l", run.work / "store"], capture_output=True)

    yield "a_file", bad(lambda store: store.write_text("x"), ["is a file, not a store"], code=10)
    yield "read_only", bad(read_only, ["ermission denied"])
    yield "full", full_store


def users():
    def as_user(name, *command):
        group = subprocess.run(["id", "-g", name], capture_output=True, text=True).stdout.strip()
        return ["setpriv", f"--reuid={name}", f"--regid={group}", "--clear-groups", *command]

    def open_to_all(run):
        if os.getuid() != 0 or not shutil.which("setpriv"):
            raise Skipped("only root may become others")
        ordinary_user.require(run.build)
        os.chmod(run.work, 0o777)

    def asked_by_nobody(owner):
        def go(run):
            open_to_all(run)
            command = [program(run, "ordinary")]
            process = start(run, command if owner == "root" else as_user(owner, *command))
            begin = time.monotonic()
            done = subprocess.run(as_user("nobody", run.build / "bin" / "gpuckpt", "checkpoint", str(process.pid)),
                                  env=run.environment(), cwd="/", capture_output=True, text=True, timeout=90)
            took = time.monotonic() - begin
            expect(done.returncode == 14 and f"user {owner} (" in done.stderr and "nobody (" in done.stderr,
                   f"does not name the users: exit {done.returncode}: {done.stderr.strip()}")
            expect(took < 2, f"refused after {took:.1f} s only")
            goes_on(run, process)
        return go

    def worker(users, code, *words):
        """A master that stays root, its worker that does not (nginx, php-fpm)."""
        def go(run):
            open_to_all(run)
            process = start(run, [program(run, "drops"), "worker"], GPUCKPT_USERS=users)
            begin = time.monotonic()
            done = run.checkpoint(process.pid)
            said = done.stderr.strip()
            expect(done.returncode == code and all(w in said for w in words), f"checkpoint: exit {done.returncode}: {said}")
            expect(code != 14 or time.monotonic() - begin < 3, "not refused at once")
            goes_on(run, process)
        return go

    def ids(pid):
        wanted = ("Uid", "Gid", "Groups", "Cap", "NoNewPrivs")
        return [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(wanted)]

    def dropped(run):
        """Its store is its own user's: root takes that over, and restores it with all its ids."""
        open_to_all(run)
        process = start(run, [program(run, "drops")])
        before = ids(process.pid)
        done = run.checkpoint(process.pid)
        expect(done.returncode == 3 and "user 65534, who owns the snapshot" in done.stderr, f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
        run.kill(process)
        subprocess.run(["chown", "-R", "0:0", run.work / "store"], check=True)
        process, pid = run.restore(1)
        run.until(lambda: ids(pid) == before, process, "before it had its ids again")
        run.release()
        run.finish(process)

    def for_a_moment(run):
        """It has become another user by seteuid alone: the store is the starter's, who restores it."""
        open_to_all(run)
        process = start(run, [program(run, "drops"), "moment"])
        before = ids(process.pid)
        done = run.checkpoint(process.pid)
        expect(done.returncode == 0, f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
        expect((run.work / "store").stat().st_uid == 0, "the store is not root's")
        run.kill(process)
        process, pid = run.restore(1)
        run.until(lambda: ids(pid) == before, process, "before it had its ids again")
        run.release()
        run.finish(process)

    def store_of_root(run):
        """What it may not write is named with the user that it has become."""
        open_to_all(run)
        (run.work / "store").mkdir(0o755)
        process = start(run, [program(run, "drops")])
        fails(run, process.pid, ["belongs to user 0,", "as user 65534", "--store"], seconds=3)
        goes_on(run, process)

    def no_store_yet(run):
        """A folder of root's in which it cannot make its store: the message says how it is made beforehand."""
        open_to_all(run)
        os.chmod(run.work, 0o755)
        process = start(run, [program(run, "drops")])
        fails(run, process.pid, ["cannot be created by user 65534", "install -d -m 700 -o 65534 ", "--store"], code=1, seconds=3)
        goes_on(run, process)

    def unmapped(run):
        if subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode != 0:
            raise Skipped("no user namespaces here")
        process = start(run, ["unshare", "-U", program(run, "ordinary")])
        fails(run, process.pid, ["user namespace", "unshare -U"], seconds=2)
        goes_on(run, process)

    def mapped(run):
        """Its /tmp/gpuckpt-0 is the real root's."""
        open_to_all(run)
        if subprocess.run(as_user("nobody", "unshare", "-Ur", "true"), capture_output=True).returncode != 0:
            raise Skipped("no user namespaces here")
        Path("/tmp/gpuckpt-0").mkdir(0o700, exist_ok=True)
        os.chown(run.work, 65534, 65534)
        process = start(run, as_user("nobody", "unshare", "-Ur", program(run, "ordinary")), GPUCKPT_SESSION_DIR="")
        done = subprocess.run(as_user("nobody", run.build / "bin" / "gpuckpt", "checkpoint", str(process.pid)),
                              env=run.environment(GPUCKPT_SESSION_DIR=""), cwd="/", capture_output=True, text=True, timeout=90)
        expect(done.returncode == 3 and "a user namespace of its own" in done.stderr,
               f"not reached, or nothing said of its namespace: exit {done.returncode}: {done.stderr.strip()}")
        goes_on(run, process)

    def may(*command):
        if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
            raise Skipped(f"{' '.join(command)} is not allowed here")

    def own_namespaces(*options, names, user=None, preload_after=False):
        """Around the program, which cannot know: a restore would put it into others, with other capabilities."""
        def go(run):
            unshare = ["unshare", *options]
            if user:
                open_to_all(run)
                unshare = as_user(user, *unshare)
                os.chown(run.work, 65534, 65534)
            may(*unshare)
            env = {}
            if preload_after:
                unshare += ["env", f"LD_PRELOAD={run.build / 'lib' / 'libgpuckpt.so'}"]
            command = [*unshare, program(run, "ordinary")]
            process = run.popen(command, "out", "err", **env,
                                **({} if preload_after else {"LD_PRELOAD": str(run.build / "lib" / "libgpuckpt.so")}))
            run.until(lambda: run.says("ready"), process, "before it was ready")
            pid = next(p for p in family(process.pid) if command_of(p).startswith(str(program(run, "ordinary"))))
            done = run.checkpoint(pid)
            expect(done.returncode == 3 and all(n in done.stderr for n in names),
                   f"its namespaces are not told: exit {done.returncode}: {done.stderr.strip()}")
            goes_on(run, process)
        return go

    def same_namespaces(run):
        """Asked and restored from inside: they are the environment, and nothing is to be said."""
        may("unshare", "-Urm")
        library, cli = run.build / "lib" / "libgpuckpt.so", run.build / "bin" / "gpuckpt"
        script = (f'LD_PRELOAD={library} {program(run, "ordinary")} > out & '
                  f'until grep -q ready out; do sleep 0.02; done; {cli} checkpoint --stop $! && wait; '
                  f'touch was_restored go_on; {cli} restore store')
        done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], env=run.environment(), cwd=run.work,
                              capture_output=True, text=True, timeout=90)
        expect(done.returncode == 0 and run.says("survived") and "namespace" not in done.stderr,
               f"exit {done.returncode}: {done.stdout.strip()} {done.stderr.strip()}")

    def moved(option, names, code=14, needs=()):
        """It changes them itself."""
        def go(run):
            may("unshare", option, *needs)
            process = start(run, [program(run, "moves"), option])
            fails(run, process.pid, names, code, seconds=3)
            goes_on(run, process)
        return go

    def proc_of_children(run):
        """/proc, which it shares with its children, shows their namespace, and the process itself no more."""
        may("unshare", "-fp", "--mount-proc")
        process = start(run, ["unshare", "-fp", "--mount-proc", program(run, "ordinary")])
        fails(run, process.pid, ["pid namespace for its children"], code=1)
        goes_on(run, process)

    def changing_user(run):
        """The library's threads are of the user that the program was when they started: the command takes them for a stranger's."""
        if os.getuid() != 0:
            raise Skipped("only root can be another user for a while")
        process = start(run, ["python3", "-c", CHANGING_USER])
        for _ in range(4):
            done = run.checkpoint(process.pid)
            expect("another user's process" not in done.stderr, done.stderr.strip())
        goes_on(run, process)

    yield "asks_of_root", asked_by_nobody("root")
    yield "asks_of_daemon", asked_by_nobody("daemon")
    yield "worker_refused", worker("refuse", 14, "(drops)", "user nobody (", "user root (", "GPUCKPT_USERS=refuse")
    yield "worker_told", worker("tell", 3, "(drops)", "user nobody (", "with root's rights")
    yield "worker_trusted", worker("trust", 0)
    yield "dropped", dropped
    yield "for_a_moment", for_a_moment
    yield "store_of_root", store_of_root
    yield "no_store_yet", no_store_yet
    yield "unmapped", unmapped
    yield "mapped", mapped
    both = ["a user namespace and mount namespace of its own", "from inside"]
    yield "namespaces", own_namespaces("-Urm", names=both)
    yield "namespaces_of_nobody", own_namespaces("-Urm", names=both, user="nobody")
    yield "namespaces_and_pids", own_namespaces("-Urmpf", "--mount-proc", names=both)
    yield "namespaces_all", own_namespaces("-Urmniu", names=["a user namespace, mount namespace, network namespace, IPC"])
    yield "namespaces_unseen", own_namespaces("-Urm", names=both, preload_after=True)
    yield "namespaces_same", same_namespaces
    yield "moves_user", moved("-U", names=["has changed its user namespace"])
    yield "moves_cgroup", moved("-C", names=["has changed its cgroup namespace"])
    yield "moves_children", moved("-p", names=["pid namespace for its children"], code=1, needs=("-f",))
    yield "proc_of_children", proc_of_children
    yield "changing_user", changing_user


CASES = {f.__name__: f for f in (sanitizers, tools, seccomp, stuck, own_environment, own_signals, own_group, ends, io_uring, limits,
                               stores, users)}
# As an ordinary user: root may exceed what would be in the way.
AS_NOBODY = ("limits", "stores")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--build", type=Path, default=HERE.parents[1] / "build")
    parser.add_argument("--only", help="of the case's parts, this one")
    options = parser.parse_args()
    failed = done = 0
    for name, go in CASES[options.case]():
        if options.only and name != options.only:
            continue
        run = Run(name, "nobody" if options.case in AS_NOBODY else "root", options.build.resolve())
        run.go = lambda go=go, run=run: go(run)
        try:
            wrong, seconds = run.run()
        except Skipped as why:
            print(f"skipped {name}: {why}")
            continue
        done += 1
        failed += wrong is not None
        print(f"{'FAILED' if wrong else 'ok':7}{name:24}{seconds:6.1f} s" + (f"  {wrong}" if wrong else ""), flush=True)
    sys.exit(1 if failed else 0 if done else SKIPPED)


if __name__ == "__main__":
    main()
