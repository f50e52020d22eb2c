#!/usr/bin/env python3
"""A driver that the program loaded past us, or calls past the gate: its state is missing in a snapshot that says all is well.
past_us_test.py BUILD_DIR [CASE...]"""
import functools
import os
import shutil
import sys

import harness
from harness import Failure, Session

EXPECTED = ["at work", "4711"]


def driver_of(tools):
    return tools.build / "lib" / "simgpu" / "libcuda.so.1"


def command(tools, how, driver):
    return [tools.build / "tests" / "programs" / "past_us", how, driver]


def ends_right(session, process, out="out"):
    (session.work / "go").touch()
    (session.work / "end").touch()
    if session.finish(process, 30) != 0:
        raise Failure(f"ended with {process.returncode}: {session.errors(out)}")
    session.compare(EXPECTED)


def refused(tools, how, name=None, says="loaded past gpuckpt"):
    """The snapshot is refused by the name of the file, and the program goes on. `name`: a copy of the driver under that name."""
    with Session(tools, 1) as session:
        driver = driver_of(tools)
        if name:
            driver = session.work / name
            shutil.copy(driver_of(tools), driver)
        process = session.run(command(tools, how, driver))
        session.wait_lines(1, process)
        for _ in range(2):  # what was looked at once is known the second time
            done = session.cli("checkpoint", process.pid, "--timeout", "10s", check=False)
            if done.returncode != 14 or says not in done.stderr or driver.name not in done.stderr:
                raise Failure(f"exit {done.returncode}: {done.stderr.strip()}")
        ends_right(session, process)


def restored(tools, how):
    """Our door caught it, or it is none: the snapshot holds the device."""
    with Session(tools, 1) as session:
        process = session.run(command(tools, how, driver_of(tools)))
        session.wait_lines(1, process)
        snapshot = session.snapshot(process, "cli")
        session.kill(process)
        (session.work / "go").touch()
        ends_right(session, session.restore(snapshot), "restore")


def private_table(tools):
    """A thread that comes to the driver past the gate makes the snapshot wait until it has stopped. (One that does not run between
    the closing of the gate and the stop, on a busy machine, changes nothing: then the snapshot is right to succeed.)"""
    with Session(tools, 1) as session:
        process = session.run(command(tools, "table", driver_of(tools)))
        session.wait_lines(1, process)
        for _ in range(20):
            done = session.cli("checkpoint", process.pid, "--timeout", "2s", check=False)
            if done.returncode != 0:
                break
        if done.returncode != 15 or "past the gate" not in done.stderr:
            raise Failure(f"exit {done.returncode}: {done.stderr.strip()}")
        (session.work / "go").touch()
        snapshot = session.snapshot(process, "cli")
        session.kill(process)
        ends_right(session, session.restore(snapshot), "restore")


def device_file(tools):
    """A device file of the GPU is open, and no driver that we know."""
    path = f"/dev/nvidia-gpuckpt-test-{os.getpid()}"
    try:
        open(path, "w").close()
    except OSError:
        print("skipped: /dev cannot be written")
        return
    try:
        with Session(tools, 1) as session:
            process = session.run(["sh", "-c", f"exec 5<{path}; echo ready; while ! [ -e go ]; do sleep 0.01; done"])
            session.wait_lines(1, process)
            done = session.cli("checkpoint", process.pid, "--children", "ignore", check=False)
            if done.returncode != 14 or path not in done.stderr:
                raise Failure(f"exit {done.returncode}: {done.stderr.strip()}")
            (session.work / "go").touch()
            session.finish(process, 30)
    finally:
        os.unlink(path)


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    case = functools.partial
    cases = {"dlmopen": case(refused, tools, "dlmopen"), "deepbind": case(refused, tools, "deepbind"),
             "copy": case(refused, tools, "open", "libgraphics.so"),
             "copy_deepbind": case(refused, tools, "deepbind", "libcuda.so.535.54.03"),
             "path": case(restored, tools, "open"), "mapped": case(restored, tools, "mapped"),
             "private_table": case(private_table, tools), "device_file": case(device_file, tools)}
    return harness.run_cases({name: cases[name] for name in sys.argv[2:] or cases})


if __name__ == "__main__":
    sys.exit(main())
