#!/usr/bin/env python3
"""Snapshots around a program's first call of CUDA: a restored program that waits at a gate nobody opens, a driver that was
initialised while nobody looked, a process that is without its device: first_call_test.py BUILD_DIR [CASE...]."""
import functools
import sys
import time

import harness
from harness import NOBODY, Failure, Session

STEPS = ("untouched", "opened", "asked", "initialised", "counted", "context", "runtime")


def program(tools, name):
    return tools.build / "tests" / "programs" / name


def started(session, command, **env):
    """The program, at the step where it waits. (How many lines it prints there: one.)"""
    process = session.run(command, **env)
    session.wait_lines(1, process)
    return process


def go(session, file="go"):
    (session.work / file).touch()


def expected_of(tools, command, **env):
    with Session(tools) as session:
        go(session)
        go(session, "end")
        if session.plain(command, session.work / "out", **env) != 0:
            raise Failure(f"{command}: fails without gpuckpt: {session.errors('out')}")
        return session.lines()


def ends_right(session, process, expected, out):
    if session.finish(process, 30) != 0:
        raise Failure(f"ended with {process.returncode}: {session.errors(out)} {session.errors('out')}")
    session.compare(expected)


def at_step(tools, step, user=None, again=0):
    """Snapshot at the step, kill, restore; `again` snapshots, each of the restored one."""
    command = [program(tools, "first_call"), step]
    environment = {"LD_LIBRARY_PATH": tools.build / "lib" / "simgpu"} if step == "runtime" else {}
    expected = expected_of(tools, command)
    with Session(tools, 1, user) as session:
        process = started(session, command, **environment)
        snapshot = session.snapshot(process, "cli")
        session.kill(process)
        for _ in range(again):
            process = session.restore(snapshot)
            snapshot = session.snapshot(process, "cli", pid=process.restored_pid)
            session.kill(process, process.restored_pid)
        go(session)
        ends_right(session, session.restore(snapshot), expected, "restore")


def goes_on(tools, step):
    """The program that was snapshotted goes on, and calls the driver."""
    command = [program(tools, "first_call"), step]
    expected = expected_of(tools, command)
    with Session(tools, 1) as session:
        process = started(session, command)
        session.snapshot(process, "cli")
        go(session)
        ends_right(session, process, expected, "out")


def inside_init(tools):
    """The snapshot comes while another thread is inside cuInit, which takes a while."""
    command = [program(tools, "first_call"), "entering"]
    expected = expected_of(tools, command)
    for pause in 0.0, 0.02, 0.1:
        with Session(tools, 1) as session:
            process = started(session, command, SIMGPU_SLOW_INIT=300)
            go(session)
            time.sleep(pause)
            snapshot = session.snapshot(process, "cli")
            session.kill(process)
            go(session, "end")
            ends_right(session, session.restore(snapshot), expected, "restore")


def job(tools, user=None):
    """Children make their first calls while one snapshot of the job after the other is taken. Each of these restores."""
    command = [program(tools, "first_calls"), 8]
    expected = expected_of(tools, command)
    with Session(tools, 1, user) as session:
        process = started(session, command)
        taken = [session.snapshot(process, "cli") for _ in range(5)]
        session.kill(process)
        go(session)
        for snapshot in reversed(taken):
            ends_right(session, session.restore(snapshot), expected, "restore")


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    cases = {step: functools.partial(at_step, tools, step) for step in STEPS}
    cases |= {f"{step}_nobody": functools.partial(at_step, tools, step, NOBODY) for step in ("untouched", "opened")}
    cases |= {f"{step}_again": functools.partial(at_step, tools, step, again=2) for step in ("untouched", "initialised")}
    cases |= {f"{step}_goes_on": functools.partial(goes_on, tools, step) for step in ("untouched", "opened", "asked")}
    cases |= {"inside_init": functools.partial(inside_init, tools), "job": functools.partial(job, tools),
              "job_nobody": functools.partial(job, tools, NOBODY)}
    wanted = sys.argv[2:] or cases
    return harness.run_cases({name: cases[name] for name in wanted})


if __name__ == "__main__":
    sys.exit(main())
