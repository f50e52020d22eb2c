#!/usr/bin/env python3
"""A program gives its GPU back and goes on later, where it was or on another one, and none of it shows in what it
computes: suspend_test.py BUILD_DIR [NAME...]."""
import json
import signal
import sys
import threading
import time

import harness
from harness import Failure, Session, reference

REFUSED, LOCKED = 14, 11
SWAP = ("--gpu-map", "0=1,1=0")


def stands_still(session):
    """It has had time to come to the gate; then it writes nothing more."""
    lines = -1
    while lines != len(session.lines()):
        lines = len(session.lines())
        time.sleep(0.3)


def expect(session, status, *arguments):
    done = session.cli(*arguments, check=False)
    if done.returncode != status:
        late = any(words in done.stderr for words in harness.HAS_ENDED)
        raise (harness.TooLate if late else Failure)(f"{arguments}: exit {done.returncode}, not {status}: {done.stderr.strip()}")
    return done


def counts_on(session, process, boards):
    """Ends the program; its lines count on without a gap, on one of `boards` after the other."""
    if session.finish(process, 60) != 0:
        raise Failure(f"ended with {process.returncode}: {session.errors('out')} {session.errors('restore')}")
    lines = [line.split() for line in session.lines()]
    if [int(n) for n, _ in lines] != list(range(1, len(lines) + 1)):
        raise Failure(f"it does not count on: {lines}")
    seen = [board for i, (_, board) in enumerate(lines) if i == 0 or board != lines[i - 1][1]]
    if seen != boards:
        raise Failure(f"it was on {seen}, not {boards}")


def boards_of(tools, program):
    """The machine's two boards, by what the program says where it sees one of them first."""
    found = []
    for visible in ("0,1", "1,0"):
        with Session(tools) as session:
            process = session.popen([*program[:1], 1, 0], session.work / "out", SIMGPU_DEVICES=2,
                                    CUDA_VISIBLE_DEVICES=visible,
                                    LD_LIBRARY_PATH=tools.build / "lib" / "simgpu")
            session.finish(process)
            found.append(session.lines()[0].split()[1])
    return found


def plain(tools):
    """Memory alone: twice, with everything refused that would go wrong meanwhile."""
    command = tools.subject("shared_handles", steps=80)
    expected, _ = reference(tools, command)
    with Session(tools, 1) as session:
        process = session.run(command)
        wanted = 5
        for _ in range(2):
            session.wait_lines(wanted, process)
            given = json.loads(expect(session, 0, "suspend", process.pid, "--json").stdout)
            if given["contexts"]:
                raise Failure(f"without --release the contexts stay: {given}")
            stands_still(session)
            wanted = len(session.lines()) + 10
            expect(session, REFUSED, "suspend", process.pid)
            expect(session, REFUSED, "resume", process.pid, *SWAP)
            expect(session, 0, "resume", process.pid)
            expect(session, REFUSED, "resume", process.pid)
        if session.finish(process) != 0:
            raise Failure(f"ended with {process.returncode}: {session.errors('out')}")
        session.compare(expected)


def release(tools):
    """All of it, several times, and a snapshot of the program that came back."""
    command = tools.subject("shared_handles", steps=80)
    expected, _ = reference(tools, command)
    with Session(tools, 2) as session:
        process = session.run(command)
        for lines in (5, 25):
            session.wait_lines(lines, process)
            given = json.loads(expect(session, 0, "suspend", process.pid, "--release", "--json").stdout)
            if not given["contexts"] or given["bytes"] < 2 << 20:
                raise Failure(f"the program's own mappings count: {given}")
            stands_still(session)
            expect(session, 0, "resume", process.pid)
        snapshot = session.snapshot(process, "cli")
        session.kill(process)
        if session.finish(session.restore(snapshot)) != 0:
            raise Failure(f"restored: {session.errors('restore')} {session.errors('out')}")
        session.compare(expected)


def move(tools):
    """To another board and back, alive; names of boards that it does not have change nothing."""
    program = [tools.build / "tests" / "programs" / "which_gpu", 60, 20]
    here, there = boards_of(tools, program)
    with Session(tools, 3) as session:
        process = session.run(program, SIMGPU_DEVICES=2)
        for lines in (5, 20):
            session.wait_lines(lines, process)
            expect(session, 0, "suspend", process.pid, "--release")
            stands_still(session)
            for wrong in ("0=1", "0=7", "5=0", "0", "0=GPU-00000000-0000-0000-0000-000000000000"):
                done = session.cli("resume", process.pid, "--gpu-map", wrong, check=False)
                if done.returncode == 0:
                    raise Failure(f"--gpu-map {wrong}: went on")
            expect(session, 0, "resume", process.pid, *SWAP)
        counts_on(session, process, [here, there, here])


def restore_elsewhere(tools):
    """A snapshot goes on on the other board; a map that cannot be is said before anything runs."""
    program = [tools.build / "tests" / "programs" / "which_gpu", 40, 20]
    here, there = boards_of(tools, program)
    with Session(tools, 4) as session:
        process = session.run(program, SIMGPU_DEVICES=2)
        session.wait_lines(5, process)
        snapshot = session.snapshot(process, "cli")
        session.kill(process)
        before = session.lines()
        try:
            session.finish(session.restore(snapshot, options=("--gpu-map", "0=7")))
        except Failure:
            pass
        else:
            raise Failure("--gpu-map 0=7 was taken")
        if session.lines() != before:
            raise Failure("a restore that failed wrote on")
        counts_on(session, session.restore(snapshot, options=SWAP), [here, there])


def permuted(tools):
    """Four devices that read each other's memory change places: at a restore, and while the program is suspended."""
    command = tools.subject("peers", steps=120)
    expected, _ = reference(tools, command)
    with Session(tools, 5) as session:
        process = session.run(command)
        pid = process.pid
        for _ in range(3):
            session.wait_lines(len(session.lines()) + session.random.randint(3, 8), process)
            expect(session, 0, "suspend", pid, "--release")
            expect(session, 0, "resume", pid, "--gpu-map", shuffled(session))
            session.wait_lines(len(session.lines()) + session.random.randint(1, 5), process)
            snapshot = session.snapshot(process, "cli", pid)
            session.kill(process, pid)
            process = session.restore(snapshot, options=("--gpu-map", shuffled(session)))
            pid = process.restored_pid
        if session.finish(process) != 0:
            raise Failure(f"ended with {process.returncode}: {session.errors('out')} {session.errors('restore')}")
        session.compare(expected)


def shuffled(session):
    boards = list(range(4))
    session.random.shuffle(boards)
    return ",".join(f"{i}={board}" for i, board in enumerate(boards))


def under_load(tools):
    """32 threads allocate and copy, signals come, snapshots are asked for all the while; then it is killed, suspended."""
    program = tools.build / "tests" / "programs" / "busy_gpu"
    command = [program, 1000, 15]  # longer than this takes on a busy machine: it is ended in the end
    expected, _ = reference(tools, [program, 1000, 0])
    with Session(tools, 6) as session:
        process = session.run(command)
        session.wait_lines(2, process)
        snapshot = session.snapshot(process, "cli")
        over, codes = threading.Event(), []

        def ask():
            while not over.is_set():
                done = session.cli("checkpoint", process.pid, check=False)
                codes.append(done.returncode)
                if done.returncode not in (0, REFUSED, LOCKED):
                    raise Failure(f"checkpoint while others suspend it: {done.returncode} {done.stderr}")
                session.signal(process.pid, signal.SIGUSR1)
                time.sleep(0.02)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for turn in range(6):
                session.wait_lines(len(session.lines()) + session.random.randint(1, 6), process)
                expect(session, 0, "suspend", process.pid, *(["--release"] if turn % 2 else []))
                lines = len(session.lines())
                time.sleep(session.random.random() * 0.3)
                if len(session.lines()) > lines + 1:
                    raise Failure("suspended, it goes on")
                expect(session, 0, "resume", process.pid)
        finally:
            over.set()
            asking.join()
        if set(codes) - {0, REFUSED, LOCKED} or 0 not in codes:
            raise Failure(f"checkpoint while others suspend it: {codes}")
        session.wait_lines(len(session.lines()) + 2, process)
        snapshot = session.snapshots()[-1]["id"]
        expect(session, 0, "suspend", process.pid)
        session.kill(process)
        session.compare(expected, prefix=True)
        process = session.restore(snapshot)
        session.wait_lines(len(session.lines()) + 3, process)
        expect(session, 0, "suspend", process.restored_pid, "--release")
        expect(session, 0, "resume", process.restored_pid)
        session.wait_lines(len(session.lines()) + 20, process)
        session.kill(process, process.restored_pid)
        session.compare(expected, prefix=True)


CASES = {"under_load": under_load, "permuted": permuted, "plain": plain, "release": release, "move": move, "restore_elsewhere": restore_elsewhere}


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    names = sys.argv[2:] or CASES
    return harness.run_cases({name: lambda case=CASES[name]: case(tools) for name in names})


if __name__ == "__main__":
    sys.exit(main())
