#!/usr/bin/env python3
"""A program gives its GPU back and goes on later, where it was or on another one, and none of it shows in what it
computes: suspend_test.py BUILD_DIR [NAME...]."""
import json
import sys
import time

import harness
from harness import Failure, Session, reference

REFUSED = 14
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
        raise Failure(f"{arguments}: exit {done.returncode}, not {status}: {done.stderr.strip()}")
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


CASES = {"plain": plain, "release": release, "move": move, "restore_elsewhere": restore_elsewhere}


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    names = sys.argv[2:] or CASES
    return harness.run_cases({name: lambda case=CASES[name]: case(tools) for name in names})


if __name__ == "__main__":
    sys.exit(main())
