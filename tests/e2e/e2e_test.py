#!/usr/bin/env python3
"""Snapshot, kill, restore, compare: e2e_test.py SCENARIO [SUBJECT] [--build DIR] [--seed N] [--count N]

Scenarios, each named by the fear:
  kill        the snapshot does not hold what the program needs to go on
  continue    the snapshot changes the program that goes on
  repeat      a restore uses the snapshot up
  chain       a restored program cannot be snapshotted, or its descendants drift
  nobody      it works only as root
  lazy        restored lazily, the program or its device waits for memory that no process supplies any more
  lazy_nobody  the same without root, where the kernel's own accesses do not wait for memory
  cli         `checkpoint` prints an id before the snapshot is there
  every       the timer
  storm       snapshots back to back
  stop        --stop loses what was computed, or the program goes on behind the snapshot
  stop_fails  --stop ends the program although there is no snapshot
  precopy     what is copied before the stop, for want of room, has changed by then, or nothing is
  undisturbed the preload alone changes a result
  life        a program dies in one generation after another: snapshots of generations 0, 1 and 2, the oldest restored last
  life_nobody the same without root
  locked      a lock of libc that a thread holds at the snapshot keeps the device from coming back (its own subject)
  sent        host memory goes to the writer before the stop, and what was written meanwhile is copied
  no_copy     the process cannot be copied, and is written while it is stopped
  mirror      the store is lost, and its mirror is not enough to go on, or is given up from then on
  rclone      the same with a mirror that rclone reaches
  container   a container's filter takes away what it is built on (clone3, kcmp, userfaultfd, PAGEMAP_SCAN, namespaces)
"""
import argparse
import itertools
import json
import random
import re
import shutil
import sys
import time

import harness
from harness import NOBODY, Failure, Session, TooLate, cycle, reference


def kill(tools, command, seed):
    return cycle(tools, command, seed)


def go_on(tools, command, seed):
    return cycle(tools, command, seed, go_on=True)


def repeat(tools, command, seed):
    return cycle(tools, command, seed, restores=3)


def chain(tools, command, seed):
    return cycle(tools, command, seed, chain=2)


def nobody(tools, command, seed):
    return cycle(tools, command, seed, user=NOBODY)


def lazy(tools, command, seed, user=None):
    return cycle(tools, command, seed, user=user, chain=1, restore_options=["--lazy"])


def lazy_nobody(tools, command, seed):
    return lazy(tools, command, seed, NOBODY)


def cli(tools, command, seed):
    return cycle(tools, command, seed, how="cli")


def every(tools, command, seed):
    return cycle(tools, command, seed, how="every", options=["--every", "300ms"])


def storm(tools, command, seed):
    """Ten snapshots one after the other; the program ends as ever, and the first, a middle and the last restore."""
    expected, status = reference(tools, command)
    with Session(tools, seed) as session:
        process = session.run(command)
        session.wait_lines(2, process)
        taken = []
        while len(taken) < 10 and process.poll() is None:
            try:
                taken.append(session.snapshot(process, "cli"))
            except TooLate:
                break
        if session.finish(process) != status:
            raise Failure(f"ended with {process.returncode}: {session.errors('out')}")
        session.compare(expected)
        if len(taken) < 3:
            raise TooLate(f"only {len(taken)} snapshots before it ended")
        changed = json.loads(session.cli("diff", f"{session.work}/store@{taken[0]}", f"{session.work}/store@{taken[1]}",
                                         "--json").stdout)["parts"]
        if not any("allocation 0x" in part["name"] and part["changed_bytes"] for part in changed):
            raise Failure(f"diff names no allocation: {changed}")
        # Youngest first: files open for writing are cut to what a snapshot knew of them.
        for snapshot in (taken[-1], taken[len(taken) // 2], taken[0]):
            if session.finish(session.restore(snapshot)) != status:
                raise Failure(f"{snapshot}: {session.errors('restore')}")
            session.compare(expected)
        return {"snapshots": len(taken)}


def precopy(tools, command, seed):
    """The stage has room for a part only: rounds before the stop. Every snapshot restores, the youngest first."""
    expected, status = reference(tools, command)
    with Session(tools, seed) as session:
        process = session.run(command, GPUCKPT_STAGE="128K")
        session.wait_lines(2, process)
        taken = []
        while len(taken) < 3 and process.poll() is None:
            time.sleep(session.random.random() * 0.2)
            try:
                taken.append(session.snapshot(process, "cli"))
            except TooLate:
                break
        if len(taken) < 2:
            raise TooLate(f"only {len(taken)} snapshots before it ended")
        if session.finish(process) != status:
            raise Failure(f"ended with {process.returncode}: {session.errors('out')}")
        session.compare(expected)
        stats = [json.loads(session.cli("inspect", f"{session.store}@{id}", "--json").stdout)["stats"] for id in taken]
        if not all(s["precopy_rounds"] for s in stats):
            raise Failure(f"nothing went precopy: {stats}")
        for snapshot in reversed(taken):
            if session.finish(session.restore(snapshot)) != status:
                raise Failure(f"{snapshot}: {session.errors('restore')}")
            session.compare(expected)
        return {"rounds": [s["precopy_rounds"] for s in stats]}


def stop(tools, command, seed):
    """Not a byte may be written after a snapshot with --stop, and the program ends with the status asked for."""
    expected, status = reference(tools, command)
    with Session(tools, seed) as session:
        process = session.run(command)
        session.is_over = lambda: process.poll() == 0
        session.wait_lines(session.random.randint(2, len(expected) // 2), process)
        done = session.cli("checkpoint", process.pid, "--stop", "--stop-status", 75)
        if session.finish(process, 30) != 75:
            raise Failure(f"stopped, it ended with {process.returncode}, not 75")
        session.compare(expected, prefix=True)
        snapshot = done.stdout.strip()
        files = json.loads(session.cli("inspect", f"{session.store}@{snapshot}", "--fds", "--json").stdout)["fds"]
        log, size = next(f for f in files if f["fd"] == 1), (session.work / "out").stat().st_size
        if log["offset"] != size:
            raise Failure(f"the log was at {log['offset']} in the snapshot and is at {size} now: it went on")
        if session.finish(session.restore(snapshot)) != status:
            raise Failure(f"restored: {session.errors('restore')}")
        session.compare(expected)
        return {}


def stop_fails(tools, command, seed):
    """When a snapshot with --stop fails, early or in the middle, the program goes on as if nothing had been asked."""
    expected, status = reference(tools, command)
    with Session(tools, seed) as session:
        process = session.run(command, options=["--budget", "256K"])
        session.wait_lines(2, process)
        (session.work / "file").write_text("no store")
        for more, word in (["--store", session.work / "file"], "file"), ([], "budget"):
            done = session.cli("checkpoint", process.pid, "--stop", *more, check=False)
            if done.returncode == 0 or word not in done.stderr:
                raise Failure(f"checkpoint --stop {more}: exit {done.returncode}: {done.stderr.strip()}")
        if session.finish(process) != status:
            raise Failure(f"after a snapshot that failed, it ended with {process.returncode}: {session.errors('out')}")
        session.compare(expected)
        return {}


def life(tools, command, seed, user=None):
    """Every start has its own SIMGPU_SEED; restores come from another directory and a fresh environment."""
    expected, status = reference(tools, command, user)
    with Session(tools, seed, user) as session:
        process = session.run(command)
        session.wait_lines(session.random.randint(2, len(expected) // 3), process)
        first = newest = session.snapshot(process, "signal")
        session.kill(process)
        generations = 1
        for how in ("cli", "signal"):
            restored = session.restore(newest)
            time.sleep(session.random.random() * 0.1)
            try:
                newest = session.snapshot(restored, how, pid=restored.restored_pid)
            except (Failure, ProcessLookupError):
                if restored.poll() is None:
                    raise
                break  # it came to its end before
            generations += 1
            if restored.poll() is None:
                session.kill(restored, restored.restored_pid)
        # The younger first: its log file is the longer one.
        for snapshot in (newest, first, first):
            if session.finish(session.restore(snapshot)) != status:
                raise Failure(f"{snapshot}: {session.errors('restore')} {session.errors('out')}")
            session.compare(expected)
        return {"generations": generations}


def life_nobody(tools, command, seed):
    return life(tools, command, seed, NOBODY)


def filtered(tools, command, seed, options=(), **env):
    """Start, snapshot and restore under a filter; as nobody. Returns what the program's process said."""
    class Filtered(Session):
        def popen(self, command, *arguments, **more):
            filtering = [tools.build / "tests" / "programs" / "container", *options]
            return super().popen([*filtering, *command], *arguments, **more)

    expected, status = reference(tools, command, NOBODY)
    with Filtered(tools, seed, NOBODY) as session:
        process = session.run(command, **env)
        session.wait_lines(session.random.randint(2, len(expected) // 3), process)
        snapshot = session.snapshot(process, "signal")
        said = session.errors("out")
        session.kill(process)
        for _ in range(2):
            restored = session.restore(snapshot)
            if session.finish(restored) != status:
                raise Failure(f"{snapshot}: {session.errors('restore')} {session.errors('out')}")
            session.compare(expected)
        return said


def container(tools, command, seed):
    filtered(tools, command, seed)
    return {}


def no_copy(tools, command, seed):
    said = filtered(tools, command, seed, ["--no-copy"], GPUCKPT_COPY="clone")
    if "cannot be copied" not in said:
        raise Failure(f"it was copied all the same: {said}")
    return {}


def locked(tools, command, seed):
    """A lock of libc is held at the snapshot: the threads have to run before the device can be rebuilt, which is told. That of a
    stream of the program's own, which whoever waits for a line holds, is no matter. Asked is a clone of the whole process, or, where
    its pages are copied, one without its large memory."""
    program = tools.build / "tests" / "programs" / "locked_stdio"
    for command, way in itertools.product(([program, 60, 25], [program, 60, 25, "stdin"]), ("clone", "copy")):
        held = "stdin" not in command
        expected, status = reference(tools, command)
        with Session(tools, seed) as session:
            process = session.run(command, GPUCKPT_LOG="info", GPUCKPT_COPY=way)
            session.wait_lines(5, process)
            snapshot = session.snapshot(process, "cli")
            if session.finish(process) != status:
                raise Failure(f"went on and ended with {process.returncode}: {session.errors('out')}")
            session.compare(expected)
            for _ in range(2):
                if session.finish(session.restore(snapshot)) != status:
                    raise Failure(f"restored: {session.errors('restore')} {session.errors('out')}")
                session.compare(expected)
            # What is written before the program runs again is set aside with the tail of its file.
            said = "".join(p.read_text() for p in session.work.glob("out.err*"))
            if ("a lock of libc was held" in said) != held:
                raise Failure(f"{way}, held: {held}, but it says: {said}")
    return {}


def sent(tools, command, seed):
    """Memory of the host is sent before the stop, and what is left is copied in it. Every snapshot restores, the youngest first."""
    expected, status = reference(tools, command)
    with Session(tools, seed) as session:
        process = session.run(command, GPUCKPT_COPY="stream", GPUCKPT_TRACK="uffd")
        session.wait_lines(2, process)
        taken = [session.snapshot(process, "cli") for _ in range(3)]
        if session.finish(process) != status:
            raise Failure(f"ended with {process.returncode}: {session.errors('out')}")
        session.compare(expected)
        stats = [json.loads(session.cli("inspect", f"{session.store}@{id}", "--json").stdout)["stats"] for id in taken]
        ways = [(s["way"], s["early_bytes"] > 0) for s in stats]
        # (One that meets more written pages than it has made room for goes back to a child.)
        if stats[0]["track"] == "uffd" and (sum(w == "copy" for w, _ in ways) < 2 or not ways[1][1]):
            raise Failure(f"not so: {ways}")
        for snapshot in reversed(taken):
            if session.finish(session.restore(snapshot)) != status:
                raise Failure(f"{snapshot}: {session.errors('restore')}")
            session.compare(expected)
        return {"early": [s["early_bytes"] for s in stats]}


def leaky_shell(tools, command, seed):
    """Started with a pipe and a socket of somebody else open, as job servers and service managers leave them."""
    class Leaky(Session):
        def popen(self, command, *arguments, **more):
            left_open = [tools.build / "tests" / "programs" / "left_open"] if "run" in command else []
            return super().popen([*left_open, *command], *arguments, **more)

    expected, status = reference(tools, command)
    with Leaky(tools, seed) as session:
        process = session.run(command)
        session.wait_lines(3, process)
        snapshot = session.snapshot(process, "signal")
        session.kill(process)
        said = session.errors("out")
        for what in "pipe", "socket":
            if not re.search(rf"descriptor \d+, which the program .*was started with, is a {what} to another process", said):
                raise Failure(f"nothing is said of the {what}: {said}")
        for _ in range(2):
            if session.finish(session.restore(snapshot)) != status:
                raise Failure(f"restored: {session.errors('restore')} {session.errors('out')}")
            session.compare(expected)
        return {}


def starters_file(tools, command, seed):
    """Output goes to a file that whoever starts the program may write, and the program's user may not."""
    class Starter(Session):
        gives_files = False

    expected, status = reference(tools, command, 65534)
    with Starter(tools, seed, 65534) as session:
        process = session.run(command)
        session.wait_lines(3, process)
        snapshot = session.snapshot(process, "cli")
        session.wait_lines(5, process)  # so that something is to be set aside
        session.kill(process)
        if session.user is not None:
            elsewhere = session.cli("restore", f"{session.store}@{snapshot}", "--dry-run", check=False)
            if elsewhere.returncode != 12:
                raise Failure(f"a file that may not be opened: exit {elsewhere.returncode}")
        if session.finish(session.restore(snapshot, out="out")) != status:
            raise Failure(f"restored: {session.errors('out')}")
        session.compare(expected)
        return {}


def undisturbed(tools, command, seed):
    expected, status = reference(tools, command)
    with Session(tools, seed) as session:
        if session.finish(session.run(command)) != status:
            raise Failure(f"under the preload: {session.errors('out')}")
        session.compare(expected)
        return {}


def mirrored(tools, command, seed, remote):
    """The program is killed and the store lost: its mirror restores it, and what it snapshots then goes to the same mirror."""
    if remote and not shutil.which("rclone"):
        print("rclone is not installed: nothing was tested")
        return {}
    expected, status = reference(tools, command)
    with Session(tools, seed) as session:
        far = session.work / "far"
        target = str(far)
        if remote:
            config = session.work / ".config" / "rclone" / "rclone.conf"
            config.parent.mkdir(parents=True)
            config.write_text(f"[elsewhere]\ntype = alias\nremote = {session.work}\n")
            target = "rclone:elsewhere:far"

        def reached(known, process, pid):
            """Waits until the mirror has all; what `stats` and `list` say of it."""
            begin = time.monotonic()
            while True:
                listed = session.snapshots()
                mirror = json.loads(session.cli("mirror", session.store, "--status", "--json", check=False).stdout or "{}")
                if len(listed) == known and all(s.get("mirrored") for s in listed) and mirror.get("current"):
                    break
                if process.poll() is not None:
                    raise TooLate("the program ended before the mirror had all")
                if time.monotonic() - begin > 180:
                    raise Failure(f"the mirror has not all after 180 s: {mirror}, {session.errors('out')}")
                time.sleep(0.05)
            answer = session.cli("stats", pid, "--json", check=False)
            if answer.returncode != 0:
                raise (TooLate if process.poll() is not None else Failure)(f"stats: {answer.stderr}")
            said = json.loads(answer.stdout)["mirror"]
            if said["target"] != target or said["behind"] or said["newest"] != listed[-1]["id"]:
                raise Failure(f"stats: {said}, list: {listed[-1]['id']}")
            return listed[-1]["id"]

        options = ["--mirror", target, "--job", "red"]
        process = session.run(command, options=options)
        session.wait_lines(3, process)
        session.snapshot(process, "cli")
        first = reached(1, process, process.pid)
        session.kill(process)
        session.lose_store()
        restored = session.restore(first, ["--mirror", target])
        session.snapshot(restored, "cli", pid=restored.restored_pid)
        second = reached(1, restored, restored.restored_pid)  # of the new store; the mirror has both
        session.kill(restored, restored.restored_pid)
        if not (far / "snapshots" / f"{first}.manifest").exists():
            raise Failure("the mirror lost what the first store had")
        session.lose_store()
        session.cli("verify", target)
        # As a new machine starts the job: nothing but the mirror is there.
        process = session.run(command, "again", options=[*options, "--resume", "auto"])
        if session.finish(process) != status or f"resuming from snapshot {second}" not in session.errors("again"):
            raise Failure(f"--resume auto from the mirror: {process.returncode}: {session.errors('again')}")
        session.compare(expected)
        if session.lines("again"):
            raise Failure("--resume auto began anew")
        return {}


def mirror(tools, command, seed):
    return mirrored(tools, command, seed, remote=False)


def rclone(tools, command, seed):
    return mirrored(tools, command, seed, remote=True)


SCENARIOS = {"precopy": precopy, "mirror": mirror, "rclone": rclone, "kill": kill, "continue": go_on, "repeat": repeat, "chain": chain, "nobody": nobody, "lazy": lazy, "lazy_nobody": lazy_nobody, "cli": cli,
             "every": every, "storm": storm, "stop": stop,
             "stop_fails": stop_fails, "undisturbed": undisturbed, "life": life, "life_nobody": life_nobody, "container": container, "no_copy": no_copy,
             "locked": locked, "sent": sent, "leaky_shell": leaky_shell, "starters_file": starters_file}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("subject", nargs="?", default="train_charlm")
    parser.add_argument("--build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    tools = harness.Tools(harness.find_build(options.build))
    steps = options.steps * (2 if options.scenario in ("storm", "precopy") else 1)
    scenario = SCENARIOS[options.scenario]
    for seed in range(options.seed, options.seed + options.count):
        begin = time.monotonic()
        try:
            figures = tools.interrupt(options.subject, lambda command: scenario(tools, command, seed), steps)
        except Failure as failure:
            print(f"FAILED {options.scenario} {options.subject} --seed {seed}: {failure}")
            return 1
        print(f"ok {options.scenario} {options.subject} --seed {seed} in {time.monotonic() - begin:.1f} s {figures}",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
