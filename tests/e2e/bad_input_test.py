#!/usr/bin/env python3
"""Damaged stores, wrong pids, full disks: a clear refusal with the right exit code, and nothing else is harmed.

bad_input_test.py BUILD_DIR [NAME...]. Exit codes: 2 usage, 10 absent, 12 incompatible, 13 corrupt, 14 refused.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import harness
from harness import Failure, Session, reference

ABSENT, LOCKED, INCOMPATIBLE, CORRUPT, REFUSED, LAUNCHER = 10, 11, 12, 13, 14, 125


def expect(done, codes, *words):
    codes = codes if isinstance(codes, tuple) else (codes,)
    said = done.stdout + done.stderr
    if done.returncode not in codes:
        raise Failure(f"{done.args[1:4]}: exit {done.returncode}, not {codes}: {said.strip()[-600:]}")
    if done.returncode and not done.stderr.strip():
        raise Failure(f"{done.args[1:4]}: exit {done.returncode} without a word")
    for word in words:
        if word not in said:
            raise Failure(f"{done.args[1:4]}: does not say {word!r}: {said.strip()[-600:]}")


def refused(session, what, codes, *words):
    """A restore that fails ends with 125, and its status file says which class of failure it was."""
    status_file = session.work / "status.json"
    status_file.unlink(missing_ok=True)
    done = session.cli("restore", what, "--status-file", status_file, check=False, timeout=30)
    expect(done, LAUNCHER, *words)
    code = json.loads(status_file.read_text()).get("code")
    if code not in (codes if isinstance(codes, tuple) else (codes,)):
        raise Failure(f"restore of {what}: the status file says {status_file.read_text().strip()}, not {codes}")


def snapshot_of(session, command, count=1):
    """A store with snapshots of a program that was killed."""
    process = session.run(command)
    session.wait_lines(3, process)
    taken = [session.snapshot(process, "cli") for _ in range(count)]
    session.kill(process)
    return taken


def store_files(session):
    return sorted(p for p in session.store.rglob("*") if p.is_file() and p.stat().st_size > 0 and "lock" not in str(p))


def works(session, snapshot, expected):
    if session.finish(session.restore(snapshot), 60) != 0:
        raise Failure(f"{snapshot} does not restore any more: {session.errors('restore')}")
    session.compare(expected)


def absent_things(session, command, expected):
    expect(session.cli("list", session.work / "nothing", check=False), ABSENT)
    expect(session.cli("restore", f"{session.work}/nothing@latest", check=False), (ABSENT, 125))
    taken = snapshot_of(session, command)
    expect(session.cli("restore", f"{session.store}@00000000nothing", check=False), (ABSENT, 125))
    expect(session.cli("inspect", f"{session.store}@nothing", check=False), ABSENT)
    works(session, taken[0], expected)


def wrong_usage(session, command, expected):
    for arguments in (["restore"], ["frobnicate"], ["checkpoint", "no-number"], ["run", "--sim"],
                      ["checkpoint", "1", "--timeout", "soon"]):
        expect(session.cli(*arguments, check=False), 2)


def wrong_pid(session, command, expected):
    other = subprocess.Popen(["/bin/sleep", "60"])
    try:
        expect(session.cli("checkpoint", other.pid, check=False, timeout=30), (ABSENT, 1), str(other.pid))
        if other.poll() is not None:
            raise Failure("the other program was ended by the attempt")
    finally:
        other.kill()
        other.wait()
    expect(session.cli("checkpoint", 2 ** 22 - 3, check=False, timeout=30), ABSENT)


def other_root(session, command, expected):
    """The command line cannot reach it, and says so at once instead of waiting for an answer."""
    if os.geteuid() != 0:
        return "(needs root)"
    jail = session.work / "jail"
    (jail / "proc").mkdir(parents=True)
    # (The mount is in a namespace of its own, which ends with the program.)
    mount = ["unshare", "--mount", "--", "sh", "-c", f'mount --rbind /proc "{jail}/proc" && exec "$@"', "sh"]
    program = f"import os, time; os.chroot({str(jail)!r}); os.chdir('/'); print('in', flush=True); time.sleep(60)"
    for out, before, said in (("bare", [], "no /proc"), ("closed", mount, "/tmp")):
        process = session.run([*before, "/usr/bin/python3", "-c", program], out=out)
        session.wait_lines(1, process, out=out)
        expect(session.cli("checkpoint", process.pid, check=False, timeout=5), REFUSED, "chroot", said)
        if process.poll() is not None:
            raise Failure("the program was ended by the attempt")
        session.kill(process)


def truncated_files(session, command, expected):
    taken = snapshot_of(session, command)
    copy = session.work / "copy"
    shutil.copytree(session.store, copy)
    for path in store_files(session):
        size = path.stat().st_size
        for length in (0, 1, size // 2, size - 1):
            os.truncate(path, length)
            done = session.cli("verify", session.store, check=False)
            expect(done, (CORRUPT, ABSENT))
            refused(session, f"{session.store}@{taken[0]}", (CORRUPT, ABSENT))
            shutil.copy2(copy / path.relative_to(session.store), path)
    works(session, taken[0], expected)


def flipped_bits(session, command, expected):
    taken = snapshot_of(session, command)
    choice = random.Random(7)
    for path in store_files(session):
        content = path.read_bytes()
        for _ in range(4):
            at, bit = choice.randrange(len(content)), choice.randrange(8)
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            done = session.cli("verify", session.store, check=False)
            if done.returncode not in (CORRUPT, INCOMPATIBLE, ABSENT):
                raise Failure(f"bit {bit} of byte {at} of {path.name} flipped: verify ends with {done.returncode}")
        path.write_bytes(content)
    expect(session.cli("verify", session.store, check=False), 0)
    works(session, taken[0], expected)


def missing_packs(session, command, expected):
    taken = snapshot_of(session, command)
    biggest = max(store_files(session), key=lambda p: p.stat().st_size)
    away = session.work / "away"
    biggest.rename(away)
    expect(session.cli("verify", session.store, check=False), CORRUPT)
    refused(session, f"{session.store}@{taken[0]}", CORRUPT)
    away.rename(biggest)
    works(session, taken[0], expected)


def vanished_store(session, command, expected):
    process = session.run(command)
    session.wait_lines(3, process)
    session.snapshot(process, "cli")
    shutil.rmtree(session.store)
    session.store.write_text("a file where the store was")
    done = session.cli("checkpoint", process.pid, check=False)
    if done.returncode == 0:
        raise Failure("a snapshot into a store that is a file is reported as durable")
    if session.finish(process) != 0:
        raise Failure(f"the program ended with {process.returncode}")
    session.compare(expected)


def full_disk(session, command, expected):
    """The disk fills up in the middle of a snapshot: the program goes on, the snapshot before it stays good."""
    if os.getuid() != 0:
        return "skipped: needs root to mount a small filesystem"
    session.store.mkdir(mode=0o700)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=700", "none", session.store],
                      capture_output=True).returncode:
        return "skipped: mount is not allowed here"
    try:
        process = session.run(command)
        session.wait_lines(3, process)
        first = session.snapshot(process, "cli")
        free = os.statvfs(session.store)
        with open(session.store / "ballast", "wb") as ballast:
            ballast.write(b"x" * max(0, free.f_bavail * free.f_bsize - 8192))
        done = session.cli("checkpoint", process.pid, check=False)
        if done.returncode == 0:
            return "skipped: the snapshot needed no space"
        if not done.stderr.strip():
            raise Failure("failed without a word")
        (session.store / "ballast").unlink()
        second = session.snapshot(process, "cli")
        if session.finish(process) != 0:
            raise Failure(f"the program ended with {process.returncode}")
        session.compare(expected)
        for snapshot in (second, first):  # the older one cuts the log file that the younger one needs
            works(session, snapshot, expected)
    finally:
        subprocess.run(["umount", session.store])
    return None


def several_at_once(session, command, expected):
    """Of several checkpoints of one process at the same moment some are taken, the others hear that it is busy."""
    process = session.run(command)
    session.wait_lines(3, process)
    arguments = [str(session.tools.gpuckpt), "checkpoint", str(process.pid)]
    taken = []
    for _ in range(3):
        group = [subprocess.Popen(arguments, env=session.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) for _ in range(4)]
        results = [p.communicate(timeout=60) + (p.returncode,) for p in group]
        done = [out.strip() for out, _, code in results if code == 0]
        if (taken or done) and process.poll() is not None:  # it came to its end meanwhile
            taken += done
            break
        if not done:
            raise Failure(f"none of four checkpoints at once came through: {results}")
        taken += done
        for out, err, code in results:
            if code not in (0, LOCKED) or (code == LOCKED and "already" not in err and "busy" not in err):
                raise Failure(f"one of four checkpoints at once: exit {code}: {err.strip()}")
    if session.finish(process) != 0:
        raise Failure(f"the program ended with {process.returncode}")
    session.compare(expected)
    works(session, taken[-1], expected)
    return f"{len(taken)} taken"


def changed_file(session, command, expected):
    """A file that a mapping refers to is another one now."""
    program = session.work / "program"
    shutil.copy2(command[0], program)
    taken = snapshot_of(session, [program, *command[1:]])
    done = session.cli("restore", f"{session.store}@{taken[0]}", "--dry-run", check=False)
    expect(done, (0, 3))
    program.rename(session.work / "program.old")
    refused(session, f"{session.store}@{taken[0]}", INCOMPATIBLE, "program")
    (session.work / "program.old").rename(program)
    works(session, taken[0], expected)


def works_in(pid, folder):
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False


def device_that_fails(session, command, expected):
    """The device cannot be brought back: no process is left, the program's file is as it was, and the reason is told."""
    program = [session.tools.build / "tests" / "programs" / "device_fails", 40, 20]
    process = session.run(program, "log")
    session.wait_lines(6, process, "log")
    snapshot = session.snapshot(process, "cli")
    if session.finish(process) != 0:
        raise Failure(f"the program ended with {process.returncode}: {session.errors('log')}")
    before = (session.work / "log").read_bytes()
    for _ in range(2):
        pid_file = session.work / "pid"
        done = session.cli("restore", f"{session.store}@{snapshot}", "--pid-file", pid_file, check=False, timeout=60)
        expect(done, LAUNCHER, "memory")
        if pid_file.exists() and pid_file.read_text().strip():
            raise Failure(f"a pid was told: {pid_file.read_text()}")
        if (session.work / "log").read_bytes() != before:
            raise Failure("a restore that failed changed the program's file")
        tails = [p.name for p in session.work.iterdir() if "tail" in p.name]
        if tails:
            raise Failure(f"a restore that failed left {tails}")
        left = [p for p in os.listdir("/proc") if p.isdigit() and works_in(p, session.work)]
        if left:
            raise Failure(f"a restore that failed left processes: {left}")
    return done.stderr.strip().splitlines()[-1][-100:]


def kill_writer_of(session, seconds):
    """Kills the store's writer when there is one within that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")
                if command[0].endswith(b"gpuckpt-writer") and os.fsencode(session.store) in command:
                    os.kill(int(folder.name), signal.SIGKILL)
                    return True
            except (OSError, IndexError):
                pass
    return False


def killed_writer(session, command, expected):
    """The writer dies in the middle: the program goes on and the next snapshot is fine."""
    command = session.tools.subject("counter", 160, 25)
    expected, _ = reference(session.tools, command)
    process = session.run(command)
    session.wait_lines(2, process)
    for _ in range(10):  # a writer of a small program does not live for long
        os.kill(process.pid, signal.SIGUSR1)
        if kill_writer_of(session, 0.2):
            break
    else:
        raise Failure("no writer was caught at work")
    time.sleep(0.2)
    if process.poll() is not None:
        raise Failure(f"the program ended with {process.returncode}: {session.errors('out')}")
    snapshot = session.snapshot(process, "cli")
    if session.finish(process) != 0:
        raise Failure(f"the program ended with {process.returncode}")
    session.compare(expected)
    works(session, snapshot, expected)


CASES = [absent_things, wrong_usage, wrong_pid, other_root, truncated_files, flipped_bits, missing_packs, vanished_store, full_disk,
         several_at_once, changed_file, killed_writer,
         device_that_fails]


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))

    def run(case):
        command = tools.subject("counter", 60, 25)
        expected, _ = reference(tools, command)
        with Session(tools, 1) as session:
            return case(session, command, expected)

    return harness.run_timed({case.__name__: (lambda case=case: run(case)) for case in CASES}, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
