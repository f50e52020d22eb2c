#!/usr/bin/env python3
"""A job never runs twice on one store, and what a run publishes that has lost the job is a branch: job_line_test.py BUILD_DIR
[NAME...]. Another machine is another pid namespace here: its processes cannot be seen from outside."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import harness
from harness import Failure, Session, wait_for

FOREIGN = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Job:
    """Runs of one job on one store."""

    def __init__(self, session):
        self.session, self.count = session, 0
        self.counter = session.tools.build / "tests" / "programs" / "counter"

    def start(self, *options, before=(), job="J", steps=100000, **env):
        """A run of its own; what it says is in .err."""
        self.count += 1
        name = self.session.work / f"run{self.count}"
        status = Path(f"{name}.status")
        command = [*before, self.session.tools.gpuckpt, "run", "--store", self.session.store, "--job", job, "--status-file", status,
                   *options, "--", self.counter, steps, 20]
        with open(name, "wb") as out, open(f"{name}.err", "wb") as err:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       cwd=self.session.work, env=self.session.environment(**env), start_new_session=True)
        process.out, process.err, process.status = name, Path(f"{name}.err"), status
        self.session.processes.append(process)
        return process

    def list(self):
        answer = subprocess.run([self.session.tools.gpuckpt, "list", self.session.store, "--json"], capture_output=True, text=True,
                                env=self.session.environment())
        return json.loads(answer.stdout) if answer.returncode == 0 else []

    def latest(self):
        answer = subprocess.run([self.session.tools.gpuckpt, "inspect", f"{self.session.store}@latest", "--json"],
                                capture_output=True, text=True, env=self.session.environment())
        if answer.returncode:
            raise Failure(answer.stderr)
        return json.loads(answer.stdout)["id"]

    def program(self, process):
        """The counter itself, seen from here: the process, or a descendant of it."""
        def find():
            open_ = [process.pid]
            while open_:
                pid = open_.pop()
                try:
                    if Path(f"/proc/{pid}/comm").read_text().strip() == "counter":
                        return pid
                    for task in Path(f"/proc/{pid}/task").iterdir():
                        open_ += [int(c) for c in (task / "children").read_text().split()]
                except OSError:
                    pass
            return None
        return wait_for(f"the program of {process.args}: {process.err.read_text()}", find)

    def snapshot(self, process):
        """By a signal: across pid namespaces, too. Its description."""
        before = {s["id"] for s in self.list()}
        os.kill(self.program(process), signal.SIGUSR1)
        return wait_for("a snapshot", lambda: [s for s in self.list() if s["id"] not in before])[0]

    def wait_output(self, process, lines=3):
        wait_for("output", lambda: len(process.out.read_bytes().splitlines()) >= lines)


def expect(what, condition):
    if not condition:
        raise Failure(what)


def refused(process, code, text):
    process.wait(30)
    status = json.loads(process.status.read_text())
    said = process.err.read_text()
    expect(f"exit {process.returncode}, status {status}, {said}",
           process.returncode == 125 and status["code"] == code and text in said)


def two_hands(tools):
    """Of several that start the same job at once one runs it; the others name it."""
    for _ in range(3):
        with Session(tools) as session:
            job = Job(session)
            all_ = [job.start("--resume", "auto", "--resume-wait", "0s") for _ in range(3)]
            wait_for("all but one to end", lambda: sum(p.poll() is not None for p in all_) == 2)
            time.sleep(0.2)
            running = [p for p in all_ if p.poll() is None]
            expect("exactly one goes on", len(running) == 1)
            for p in all_:
                if p is not running[0]:
                    refused(p, 11, "is running already")
            os.kill(running[0].pid, signal.SIGKILL)
            running[0].wait()
            # Its end is noticed at once: nobody waits for a lease to run out.
            again = job.start("--resume", "never")
            job.wait_output(again)


def nothing_there(tools):
    """What begins anew says so; what must not, does not begin."""
    with Session(tools) as session:
        job = Job(session)
        refused(job.start("--resume", "require"), 10, "has no snapshot of job \"J\"")
        begins = job.start("--resume", "auto")
        job.wait_output(begins)
        expect(begins.err.read_text(), "starts from the beginning" in begins.err.read_text())


def grace_time(tools):
    """The old run is on another machine and about to end: the new one waits for its last snapshot and goes on from there."""
    with Session(tools) as session:
        job = Job(session)
        # (It is the first process of its container: who would tell its end is killed with it.)
        old = job.start("--on-term", "snapshot", before=FOREIGN, GPUCKPT_LEASE="5s")
        job.wait_output(old)
        early = job.snapshot(old)
        new = job.start("--resume", "auto", "--resume-wait", "60s")
        wait_for("the new run to say what it waits for", lambda: "waiting up to" in new.err.read_text())
        expect("the new run waits", not new.out.read_bytes())
        os.kill(job.program(old), signal.SIGTERM)
        last = wait_for("the last snapshot", lambda: [s for s in job.list() if s["id"] != early["id"]])[0]
        expect(f"{last}", last["reason"] == "term" and not last["branch"])
        wait_for("the new run to go on", lambda: "resuming from snapshot" in new.err.read_text())
        said = new.err.read_text()
        expect(f"it took {early['id']} instead of the last one: {said}", f"snapshot {last['id']}" in said)


def stopped_run(tools):
    """A run that is stopped on this machine has its job, however long: the one that waits says so, and how to end that."""
    with Session(tools) as session:
        job = Job(session)
        old = job.start(GPUCKPT_LEASE="1s")
        job.wait_output(old)
        program = job.program(old)
        os.kill(program, signal.SIGSTOP)
        new = job.start("--resume", "auto", "--resume-wait", "3s")
        refused(new, 11, "is running already")
        said = new.err.read_text()
        os.kill(program, signal.SIGCONT)
        expect(f"it does not say that the run is stopped: {said}", f"process {program} is stopped" in said and f"kill -CONT {program}" in said)
        expect(f"it promises that the lease runs out: {said}", "runs out" not in said)


def deleted_while_it_waits(tools):
    """A pod that is deleted while it waits for its job must not wait on, and take the job later: its process 1 ends at once."""
    with Session(tools) as session:
        job = Job(session)
        old = job.start()
        job.wait_output(old)
        job.snapshot(old)
        for number in signal.SIGTERM, signal.SIGINT:
            new = job.start("--resume", "auto", "--resume-wait", "60s", before=FOREIGN)
            wait_for("the new run to say what it waits for", lambda: "waiting up to" in new.err.read_text())
            first = int(Path(f"/proc/{new.pid}/task/{new.pid}/children").read_text().split()[0])
            os.kill(first, number)
            expect(f"ended with {new.wait(10)}: {new.err.read_text()}", new.wait(10) == 128 + number and "ended it before" in new.err.read_text())
        expect("the first run goes on", old.poll() is None and not job.snapshot(old)["branch"])


def ended_while_restored(tools):
    """A signal that comes while the program is being restored is not lost: it ends the restore, or reaches the program when it runs."""
    for before in (), FOREIGN:
        with Session(tools) as session:
            job = Job(session)
            old = job.start("--on-term", "snapshot", before=before)  # (process 1 has no default action)
            job.wait_output(old)
            first = job.snapshot(old)
            for pid in everybody(old.pid):
                kill(pid)
            old.wait()
            for delay in 0, 0.03, 0.1, 0.2, 0.4:
                name = session.work / f"again{delay}"
                again = session.popen([*before, tools.gpuckpt, "restore", "--files=keep", f"{session.store}@{first['id']}"], name)
                pid = wait_for("the restore's process", lambda: catches_sigterm(again.pid, bool(before)))
                time.sleep(delay)
                os.kill(pid, signal.SIGTERM)
                try:
                    again.wait(15)
                except subprocess.TimeoutExpired:
                    raise Failure(f"SIGTERM after {delay} s was lost: {Path(f'{name}.err').read_text()}")


def catches_sigterm(pid, inside):
    """The process, or its first child, once it has a handler. (The kernel discards what comes for a process 1 before.)"""
    try:
        if inside:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        caught = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")][0].split()[1]
        return pid if int(caught, 16) >> (signal.SIGTERM - 1) & 1 else None
    except (OSError, IndexError):
        return None


def lost_machine(tools):
    """The old run cannot be reached, and is back later: its snapshots are a branch that nothing takes by itself."""
    with Session(tools) as session:
        job = Job(session)
        lease = {"GPUCKPT_LEASE": "2s"}
        old = job.start(before=FOREIGN, **lease)
        job.wait_output(old)
        first = job.snapshot(old)
        members = everybody(old.pid)
        for pid in members:
            os.kill(pid, signal.SIGSTOP)
        new = job.start("--resume", "auto", "--resume-wait", "60s", **lease)
        wait_for("the new run to take over", lambda: "resuming from snapshot" in new.err.read_text(), 60)
        said = new.err.read_text()
        expect(said, first["id"] in said and "was not renewed for" in said)
        for pid in members:
            os.kill(pid, signal.SIGCONT)
        late = job.snapshot(old)
        expect(f"a late snapshot is a branch: {late}", late["branch"] and late["parent"] == first["id"])
        expect("latest is of the line", job.latest() == first["id"])
        job.program(new)
        line = job.snapshot(new)
        later = job.snapshot(old)
        expect("a snapshot of the new run is in the line", not line["branch"] and line["run"] != late["run"])
        expect("latest is the new run's", later["branch"] and job.latest() == line["id"])
        tree = session.cli("list", session.store, "--tree").stdout.splitlines()
        expect("\n".join(tree), [("branch:" in t, t.split()[0]) for t in tree[1:]] ==
               [(False, first["id"]), (True, late["id"]), (True, later["id"]), (False, line["id"])])
        # No rule of prune takes the line's newest for the sake of a branch.
        session.cli("prune", session.store, "--keep", 1)
        expect("prune keeps the line", line["id"] in [s["id"] for s in job.list()])
        for process in new, old:
            for pid in everybody(process.pid):
                kill(pid)
        third = job.start("--resume", "require", **lease)
        wait_for("the third run", lambda: "resuming from snapshot" in third.err.read_text())
        expect(third.err.read_text(), f"snapshot {line['id']}" in third.err.read_text())


def restored_beside(tools):
    """A restore by hand while the job runs is another run of it: it goes on, and publishes branches only."""
    with Session(tools) as session:
        job = Job(session)
        old = job.start()
        job.wait_output(old)
        first = job.snapshot(old)
        beside = session.popen([tools.gpuckpt, "restore", "--files=keep", f"{session.store}@{first['id']}"], session.work / "beside")
        beside.err = Path(f"{session.work / 'beside'}.err")
        branch = job.snapshot(beside)
        expect(f"{branch}", branch["branch"] and "is running" in beside.err.read_text())
        expect("the first run keeps its line", not job.snapshot(old)["branch"])


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def everybody(pid):
    """A process and its descendants, with those that unshare's child took on."""
    out, open_ = [], [pid]
    while open_:
        out.append(open_.pop())
        try:
            for task in Path(f"/proc/{out[-1]}/task").iterdir():
                open_ += [int(c) for c in (task / "children").read_text().split()]
        except OSError:
            pass
    return out


TESTS = {"two_hands": two_hands, "stopped_run": stopped_run, "nothing_there": nothing_there, "restored_beside": restored_beside}
NAMESPACES = {"deleted_while_it_waits": deleted_while_it_waits, "ended_while_restored": ended_while_restored, "grace_time": grace_time, "lost_machine": lost_machine}


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1] if len(sys.argv) > 1 else None))
    tests = dict(TESTS)
    if subprocess.run([*FOREIGN, "true"], capture_output=True).returncode == 0:
        tests |= NAMESPACES
    else:
        print("skipped, because pid namespaces cannot be made here:", *NAMESPACES)
    for name in sys.argv[2:] or tests:
        tests[name](tools)
        print("ok", name, flush=True)


if __name__ == "__main__":
    main()
