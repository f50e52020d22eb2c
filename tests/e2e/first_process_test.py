#!/usr/bin/env python3
"""A program that is process 1 of its pid namespace, as in a container, alone or with processes below it, comes back as that:
first_process_test.py BUILD_DIR [NAME...]"""
import os
import signal
import subprocess
import sys
from pathlib import Path

import harness
from harness import Failure, NOBODY, Session, wait_for

CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
ORDINARY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]


class Container(Session):
    def enter(self, *command, user):
        """`command` as process 1 of a container."""
        before = ORDINARY if user is not None else []
        return self.popen([*CONTAINER, *before, *command], self.work / "out")

    def popen(self, command, out, cwd=None, **env):
        chosen, self.user = self.user, None  # unshare is root's; whoever becomes the program takes the user
        try:
            process = super().popen(command, out, cwd, **env)
        finally:
            self.user = chosen
        if chosen is not None:
            for name in out, f"{out}.err":
                os.chown(name, chosen, chosen)
        return process


def first_of(process):
    """Process 1 of the container, seen from here."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else 0


def number_inside(name, folder):
    """The innermost number of the process of that name that works in the folder."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == name and os.readlink(entry / "cwd") == str(folder):
                return [line for line in (entry / "status").read_text().splitlines() if line.startswith("NSpid")][0].split()[-1]
        except OSError:
            pass
    return None


def comes_back(tools, command, name, user):
    with Container(tools, user=user) as session:
        run = [tools.gpuckpt, "run", "--store", session.store, "--", *command]
        process = session.enter(*run, user=user)
        first = wait_for("a program", lambda: first_of(process) if session.lines() else 0)
        os.kill(first, signal.SIGUSR1)
        snapshot = wait_for("a snapshot", session.snapshots)[0]["id"]
        os.kill(first, signal.SIGKILL)
        process.wait(30)
        lines = len(session.lines())
        again = session.enter(tools.gpuckpt, "restore", f"{session.store}@{snapshot}", user=user)
        wait_for(f"the restored program: {session.errors('out')}", lambda: len(session.lines()) > lines or again.poll() is not None)
        number = number_inside(name, session.work)
        status = session.finish(again, 60)
        expected = [*(f"step {i}" for i in range(1, 101)), "done"]
        said = [" ".join(line.split()[:2]) for line in session.lines()]
        if status != 0 or said != expected or number != "1":
            raise Failure(f"process {number}, ended with {status} after {said[-3:]}: {session.errors('out')}")
        if "new process and thread ids" in session.errors("out"):
            raise Failure(session.errors("out"))


def counter(tools):
    return tools.build / "tests" / "programs" / "counter"


def alone(user):
    return lambda tools: comes_back(tools, [counter(tools), 100, 40], "counter", user)


def with_children(user):
    # (The shell waits for the one that it has started first.)
    script = f"'{{}}' 100 40 >child & '{{}}' 100 40; wait && tail -n 1 child >&2"
    return lambda tools: comes_back(tools, ["/bin/sh", "-c", script.format(counter(tools), counter(tools))], "sh", user)


TESTS = {"alone_root": alone(None), "alone_nobody": alone(NOBODY), "children_root": with_children(None), "children_nobody": with_children(NOBODY)}


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1] if len(sys.argv) > 1 else None), sim=False)
    if os.getuid() != 0 or subprocess.run([*CONTAINER, *ORDINARY, "unshare", "-Ur", "true"], capture_output=True).returncode != 0:
        print("skipped: needs root, and user namespaces for others")
        return 77
    for name in sys.argv[2:] or TESTS:
        TESTS[name](tools)
        print("ok", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
