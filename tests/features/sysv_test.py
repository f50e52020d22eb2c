#!/usr/bin/env python3
"""What happened to System V objects between the snapshot and the restore: sysv_test.py CASE [--build DIR]

  segment   a segment is gone (a new machine, ipcrm): it is made anew, under the number by which a program finds it
  gone      semaphores and a queue are gone: they are made anew under their numbers, with values, messages, owner and mode
  far       the same in a new IPC namespace, as an ordinary user, with numbers that the kernel gives out later
  behind    the same, with numbers that the kernel has given out already: an ordinary user's restore is refused
  changed   a process that has ended changed them: they are as they were at the snapshot
  in_use    a process that lives changed them: they are left to it, and the restore says so
  posix     a POSIX queue with a name, whose messages are no part of a snapshot, has lost one: the restore says so
  taken     their key belongs to others: the restore is refused and changes nothing
  rebooted  the machine has started again, and the number of a queue without a key belongs to another one: refused

As root, where root tests, and as an ordinary user, who cannot ask the kernel for a number. (Without root only changed, in_use, posix and taken are tested.)
"""
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

from features_test import Failure, Run, may_unshare
from one_case import case_options, run_case

CLONE_NEWIPC = 0x08000000
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable  # that every user may run

CHANGE = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
sets, queue = int(sys.argv[1]), int(sys.argv[2])
message = (ctypes.c_char * 5000)()
assert libc.msgrcv(queue, message, 4992, ctypes.c_long(0), 0) == 5
message[:9] = b"\\x05" + bytes(7) + b"!"
assert libc.msgsnd(queue, message, 1, 0) == 0
assert libc.semop(sets, b"\\0\\0\\1\\0\\0\\0", 1) == 0
print("changed", flush=True)
time.sleep(float(sys.argv[3]))
"""


def objects(kind):
    """The lines of all objects of a kind, by number."""
    head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    names = ["number" if name in ("shmid", "semid", "msqid") else name for name in head.split()]
    rows = [dict(zip(names, map(int, line.split()))) for line in lines]
    return {row["number"]: row for row in rows}


def state(kind, number):
    """Of an object, what does not depend on when it was used and by whom."""
    row = objects(kind).get(number)
    return row and {name: row[name] for name in row if name in ("key", "perms", "nsems", "qnum", "cbytes", "uid", "gid")}


def remove(kind, number):
    subprocess.run(["ipcrm", {"shm": "-m", "sem": "-s", "msg": "-q"}[kind], str(number)], check=True)


def user_runs(run, *command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, cwd="/", **run.identity()).stdout


def start(run, program):
    process = run.popen([run.build / "tests" / "features" / program], "out", "err", LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    return process


def take_and_kill(run, process):
    done = run.checkpoint(process.pid)
    if done.returncode != 0:
        raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
    run.kill(process)


def go_on(run, look=lambda: None):
    process, _ = run.restore(1)
    look()
    run.release()
    run.finish(process)


def segment(run):
    process = start(run, "memory_sysv_zero")
    number = next(n for n, row in objects("shm").items() if row["cpid"] == process.pid)
    take_and_kill(run, process)
    remove("shm", number)

    def look():
        if number not in objects("shm"):
            raise Failure(f"segment {number} is not there: {objects('shm').keys()}")
    go_on(run, look)


def snapshot_of_both(run):
    """Returns what the set and the queue of the killed program were, and their numbers."""
    process = start(run, "ipc_sysv")
    sets = next(n for n, row in objects("sem").items() if row["key"] == process.pid)
    queue = next(n for n, row in objects("msg").items() if row["lspid"] == process.pid)
    before = state("sem", sets), state("msg", queue)
    take_and_kill(run, process)
    return before, sets, queue


def new_namespace():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWIPC) != 0:
        raise Failure(f"unshare: {os.strerror(ctypes.get_errno())}")


def use_up(count):
    """The kernel gives out so many numbers."""
    libc = ctypes.CDLL(None)
    for _ in range(count):
        libc.semctl(libc.semget(0, 1, 0o600), 0, 0)
        libc.msgctl(libc.msgget(0, 0o600), 0, None)


def gone(run):
    before, sets, queue = snapshot_of_both(run)
    remove("sem", sets)
    remove("msg", queue)
    back(run, before, sets, queue)


def far(run):
    new_namespace()
    use_up(5000)
    before, sets, queue = snapshot_of_both(run)
    new_namespace()
    use_up(10)
    back(run, before, sets, queue)


def behind(run):
    new_namespace()
    snapshot_of_both(run)
    new_namespace()
    use_up(100)
    refused(run, "is gone, and its number is behind")
    if objects("sem") or objects("msg"):
        raise Failure("a refused restore has made something")
    if may_unshare():  # as the refusal advises
        run.wrapper = ["unshare", "--map-current-user", "--ipc"]
        go_on(run)


def back(run, before, sets, queue):
    def look():
        if before != (after := (state("sem", sets), state("msg", queue))):
            raise Failure(f"was {before}, is {after}")
    go_on(run, look)


def changed(run):
    user_runs(run, PYTHON, "-c", CHANGE, *snapshot_of_both(run)[1:], 0)
    go_on(run)


def in_use(run):
    _, sets, queue = snapshot_of_both(run)
    user = subprocess.Popen([PYTHON, "-c", CHANGE, str(sets), str(queue), "60"], cwd="/", stdout=subprocess.PIPE,
                            **run.identity())
    run.started.append(user)
    user.stdout.readline()
    before = state("msg", queue)
    process, _ = run.restore(1)
    told = (run.work / "restore.err").read_text()
    for what, number in ("semaphore set", sets), ("message queue", queue):
        if not re.search(rf"warning: the System V {what} {number} changed since the snapshot, .* process {user.pid}, which runs", told):
            raise Failure(f"not told of the {what}: {told}")
    if state("msg", queue) != before:
        raise Failure(f"was {before}, is {state('msg', queue)}")
    process.kill()
    remove("sem", sets)
    remove("msg", queue)


RECEIVE = """
import ctypes, sys
libc = ctypes.CDLL("librt.so.1")
queue = libc.mq_open(sys.argv[1].encode(), 0)
assert libc.mq_receive(queue, ctypes.create_string_buffer(16), ctypes.c_size_t(16), None) == 5
"""


def posix(run):
    process = start(run, "fd_mqueue")
    name = f"/gpuckpt-feature-named-{process.pid}"
    take_and_kill(run, process)
    user_runs(run, PYTHON, "-c", RECEIVE, name)
    process, _ = run.restore(1)
    if f"the message queue {name} holds 0 messages and held 1" not in (told := (run.work / "restore.err").read_text()):
        raise Failure(f"not told: {told}")
    process.kill()
    ctypes.CDLL("librt.so.1").mq_unlink(name.encode())


def refused(run, words):
    store = f"{run.work / 'store'}@latest"
    done = subprocess.run(run.wrapped([run.build / "bin" / "gpuckpt", "restore", store]), cwd="/", env=run.environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, **run.identity())
    if done.returncode != 125 or words not in done.stderr:
        raise Failure(f"exit {done.returncode}, not refused by \"{words}\": {done.stderr}")


def make(run, expression):
    """Makes an object as the user; returns its number."""
    return int(user_runs(run, PYTHON, "-c", f"import ctypes; print(ctypes.CDLL(None).{expression})"))


def taken(run):
    _, sets, queue = snapshot_of_both(run)
    key = objects("sem")[sets]["key"]
    remove("sem", sets)
    other = make(run, f"semget({key}, 1, 0o1600)")
    try:
        if other == sets:
            raise Failure("the kernel gave the number out again")
        refused(run, f"the System V semaphore set {sets} is gone, and its key 0x{key:x} is that of number {other} now")
        if sets in objects("sem"):
            raise Failure("a refused restore has made something")
    finally:
        remove("sem", other)
        remove("msg", queue)


def rebooted(run):
    _, sets, queue = snapshot_of_both(run)
    other = run.work / "boot_id"
    other.write_text("00000000-0000-4000-8000-000000000000\n")
    run.wrapper = ["unshare", "--mount", "sh", "-c", f"mount --bind {other} /proc/sys/kernel/random/boot_id && exec \"$@\"", "sh"]
    refused(run, f"the System V message queue {queue} is another one now: its number was given out again")
    run.wrapper = []
    go_on(run)


class Wrapped(Run):
    """What the user runs, he runs by `wrapper`."""
    wrapper = []

    def wrapped(self, command):
        return [*self.wrapper, *super().wrapped(command)]


CASES = {case.__name__: case for case in (segment, gone, far, behind, changed, in_use, posix, taken, rebooted)}
USERS = {"segment": ["root"], "gone": ["root"], "far": ["nobody"], "behind": ["nobody"], "rebooted": ["root"]}  # else all


def main():
    options = case_options(__doc__, CASES)
    if os.geteuid() != 0 and options.case in USERS:
        print("skipped: only root can test this")
        sys.exit(77)
    # (To one who is not root, "root" is himself.)
    for flavour in USERS.get(options.case, ["root", "nobody"] if os.geteuid() == 0 else ["root"]):
        name = f"sysv_{options.case}"
        run_case(Wrapped(name, flavour, options.build), f"{name} ({flavour})", CASES[options.case])


if __name__ == "__main__":
    main()
