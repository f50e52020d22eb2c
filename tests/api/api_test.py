#!/usr/bin/env python3
"""The public interface, from C and from Python: api_test.py BUILD_DIR [CASE...]

Each case of api.c and api.py runs alone and under gpuckpt, as root and as nobody, and is killed and restored where it says that a
snapshot is durable.
"""
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from harness import Failure  # noqa: E402

# Case -> lines after each of which the program is killed and restored.
CASES = {"checkpoint": [], "restored": ["durable", "durable again"], "sections": [], "untorn": ["ready"],
         "hooks": ["durable"], "memory": ["durable", "durable again"], "python": ["durable"]}
HERE = Path(__file__).resolve().parent


def command(tools, name):
    if name in ("python", "inert_python"):
        python = tools.python if tools.python.exists() else sys.executable
        return [python, HERE / "api.py", name.removesuffix("_python")]
    return [tools.build / "tests" / "api" / "api", name]


def python_path():
    return {"PYTHONPATH": harness.SOURCE / "python", "PYTHONDONTWRITEBYTECODE": 1}


def wait_line(session, process, line):
    seen = 0
    while line not in session.lines():
        session.wait_lines(seen + 1, process)
        seen = len(session.lines())


def end(session, process, what):
    status = session.finish(process, 60)
    lines = session.lines()
    if status != 0 or lines[-1:] != ["ok"]:
        raise Failure(f"{what}: exit {status}, {lines[-3:]}: {session.errors('out')} {session.errors('restore')}")
    return lines


def case(tools, name, user):
    with harness.Session(tools, user=user) as session:
        process = session.run(command(tools, name), **python_path())
        pid = process.pid
        for line in CASES[name]:
            wait_line(session, process, line)
            if name == "untorn":
                session.snapshot(process, "cli", pid)
                (session.work / "go_on").touch()
            session.kill(process, pid)
            process = session.restore()
            pid = process.restored_pid
        lines = end(session, process, name)
        listed = session.snapshots()
        tags = [s.get("tag") or "" for s in listed]
        if name == "checkpoint" and tags[:5] != ["first", "second", "third", "", "small"]:
            raise Failure(f"tags of the snapshots: {tags}")
        if name == "restored":
            here = next(s["id"] for s in listed if s.get("tag") == "here")
            if f"restored from {here}" not in lines:
                raise Failure(f"{here} is not what the program says: {lines}")


def inert(tools, name, user):
    with harness.Session(tools, user=user) as session:
        process = session.popen(command(tools, name), session.work / "out", **python_path())
        end(session, process, name)


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]), sim=False)
    names = sys.argv[2:] or ["inert", "inert_python", *CASES]
    users = [None, harness.NOBODY] if os.getuid() == 0 else [None]
    failed = 0
    with ThreadPoolExecutor(3) as pool:
        runs = [(name, user, pool.submit(case if name in CASES else inert, tools, name, user))
                for name in names for user in users]
        for name, user, run in runs:
            try:
                run.result()
                wrong = ""
            except Exception as failure:  # the others' results are worth seeing
                failed, wrong = failed + 1, f" {type(failure).__name__}: {failure}"
            print(f"{'FAILED' if wrong else 'ok':7}{name:14}{'nobody' if user else ''}{wrong}", flush=True)
    print(f"{len(runs) - failed} of {len(runs)} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
