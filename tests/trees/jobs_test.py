#!/usr/bin/env python3
"""Snapshots of a job of several processes (programs/team.c, lend.c, handles.c) while it works: jobs_test.py [CASE...] [--build DIR] [--nobody]"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE))
import family  # noqa: E402
import harness  # noqa: E402
from harness import Failure  # noqa: E402

USER = None


class Job(harness.Session):
    """One run of programs/team.c, or of another one. `flags` as there."""

    rest = 1  # the factor of harness.slower

    def __init__(self, build, flags, steps=60, pace=10, sim=False, options=(), workers=2,
                 program="team", seed=1):
        super().__init__(harness.Tools(build, sim), seed, USER)
        self.count = workers
        self.command = harness.Paced([build / "tests" / "trees" / "programs" / program, steps], pace * Job.rest, [flags, workers])
        self.expected, _ = harness.reference(self.tools, self.command, USER)
        self.process = self.run(self.command, options=options)
        self.wait_lines(3, self.process)

    def kill(self, process, pid=None):
        family.kill_family(process)

    def is_over(self):
        """Or about to be: its last step is done, and it sees its workers off (whose memory it still has)."""
        return self.process.poll() == 0 or len(self.lines()) >= len(self.expected) - self.count

    def __exit__(self, *failure):
        for process in self.processes:
            if process.poll() is None:
                family.kill_family(process)
        return super().__exit__(*failure)

    def workers(self):
        return [pid for pid in family.family(self.process.pid)[1:] if family.parents().get(pid, (0, "Z"))[1] not in "ZX"]

    def ends_well(self, process):
        if (status := self.finish(process)) != 0:
            raise Failure(f"ended with {status}: {self.errors('restore')} {self.errors('out')}")
        self.compare(self.expected)

    def restore_some_lines(self, snapshot, count=6):
        """Restored, it writes some lines more, all of them right."""
        process = self.restore(snapshot)
        goal = min(len(self.lines()) + count, len(self.expected))
        self.wait_lines(goal, process)
        self.kill(process)
        text = (self.work / "out").read_text()
        self.compare_lines(text.splitlines() if text.endswith("\n") else text.splitlines()[:-1])

    def compare_lines(self, lines):
        if lines != self.expected[:len(lines)]:
            raise Failure(f"other lines: {lines[-3:]}")


def expect(condition, what):
    if not condition:
        raise Failure(what)


def shown(build):
    """Any member can be asked; what is shown of a snapshot is shown of every process."""
    with Job(build, "b", 400) as job:
        workers = job.workers()
        done = job.cli("checkpoint", workers[1])
        expect(f"job of process {job.process.pid}" in done.stderr and "3 processes" in done.stderr, done.stderr)
        # Alone, it has pipes to another process.
        alone = job.cli("checkpoint", workers[1], "--children", "ignore", check=False)
        expect(alone.returncode == 14 and "pipe to another process" in alone.stderr, alone.stderr)
        reference = f"{job.store}@{done.stdout.strip()}"
        pids = {job.process.pid, *workers}
        table = job.cli("list", job.store).stdout
        expect(all(table.count(str(w)) >= 1 for w in pids), table)
        listed = job.snapshots()[0]
        expect({m["pid"] for m in listed["members"]} == set(workers), listed)
        expect(all(m["logical_bytes"] > 16 << 20 for m in listed["members"]), listed)
        whole = sum(m["logical_bytes"] for m in listed["members"])
        expect(whole < listed["sizes"]["logical_bytes"], listed)
        text = job.cli("inspect", reference, "--threads", "--fds").stdout
        expect(all(f"process {p}: " in text and f"thread {p} " in text for p in pids), text)
        inside = json.loads(job.cli("inspect", reference, "--maps", "--threads", "--json").stdout)
        expect(inside["threads"][0]["tid"] == job.process.pid, inside["threads"])
        for m in inside["members"]:
            expect(m["threads"][0]["tid"] == m["pid"] and sum(v["stored"] for v in m["maps"]) > 16 << 20, m["threads"])
        page = job.cli("report", reference).stdout
        facts = json.loads(page.split('id="report-facts">')[1].split("</script>")[0])
        expect([s["processes"] for s in facts["snapshots"]] == [3], facts["snapshots"])
        rows = facts["memory"]["processes"]
        expect({r["pid"] for r in rows} == pids, rows)
        expect([sum(r["share"][k] for r in rows) for k in range(3)] == facts["memory"]["share"], rows)


def cycle(job, take):
    snapshot = take()
    job.kill(job.process)
    job.compare(job.expected, prefix=True)
    job.ends_well(job.restore(snapshot))


def one_device(build):
    """A member with a device beside members without. What the library itself asks of the driver is not the program's doing."""
    os.environ["GPUCKPT_LOG"] = "info"
    try:
        with Job(build, "g", 200, sim=True) as job:
            cycle(job, lambda: job.snapshot(job.process, "cli"))
            expect("past the gate" not in job.errors("out"), job.errors("out"))
    finally:
        del os.environ["GPUCKPT_LOG"]


def two_devices(build):
    with Job(build, "G", sim=True) as job:
        cycle(job, lambda: job.snapshot(job.process, "signal"))


def generations(job):
    process = job.process
    for how in ("cli", "signal", "cli"):
        job.wait_lines(len(job.lines()) + job.random.randint(2, 9), process)
        time.sleep(job.random.random() * 0.05)
        snapshot = job.snapshot(process, how, getattr(process, "restored_pid", None) or process.pid)
        job.kill(process)
        process = job.restore(snapshot)
    job.ends_well(process)


def shared_memory(build):
    """Memory that processes of the job have from each other is torn, comes back twice, or not at all, over generations."""
    for seed in (1, 2, 3):
        with Job(build, "-", 240, 8, sim=True, program="lend", seed=seed) as job:
            generations(job)


def locked_libc(build):
    """Members that share device memory wait for each other in a restore: one that held a lock of libc has to run first."""
    for level in "warn", "info":  # nobody reads what is said on their standard error either
        os.environ["GPUCKPT_LOG"] = level
        try:
            with Job(build, "l", 120, 8, sim=True, program="lend") as job:
                generations(job)
        finally:
            del os.environ["GPUCKPT_LOG"]


def shareable_handles(build):
    """Memory behind descriptors that are open, closed or on their way is another one's, or torn, after a restore."""
    with Job(build, "-", 120, 8, sim=True, program="handles") as job:
        generations(job)
    for flags, reason in (("o", "not part of the"), ("e", "which has ended")):
        with Job(build, flags, 400, sim=True, program="handles") as job:
            refused = job.cli("checkpoint", job.process.pid, check=False)
            expect(refused.returncode == 14 and reason in refused.stderr, refused.stderr)
            expect(os.path.exists(f"/proc/{job.process.pid}/fd/0"), "its standard input was closed")


def stranger(build):
    """A process outside of the job keeps memory that the restored job no longer shares with it; one alone restores."""
    with Job(build, "o", 400, sim=True, program="lend") as job:
        alone = job.cli("checkpoint", job.process.pid, check=False)
        expect(alone.returncode == 14 and "cuIpcGetMemHandle" in alone.stderr and "not part" in alone.stderr, alone.stderr)
    with Job(build, "-", 400, sim=True, program="lend") as job:
        alone = job.cli("checkpoint", job.workers()[0], "--children", "ignore", check=False)
        expect(alone.returncode == 14, alone.stderr)
    with Job(build, "-", 40, sim=True, program="lend", workers=0) as job:  # nobody has opened it
        cycle(job, lambda: job.snapshot(job.process, "cli"))


def replaced(build):
    """The library's file is replaced by another version while the job runs: its processes still have the library."""
    with tempfile.TemporaryDirectory() as folder:
        installed = Path(folder)
        installed.chmod(0o755)
        for name in ("bin", "lib", "tests"):
            (installed / name).mkdir()
        for file in [*build.glob("bin/gpuckpt*"), *build.glob("lib/libgpuckpt*")]:
            shutil.copy2(file, installed / file.relative_to(build))
        (installed / "tests" / "trees").symlink_to(build / "tests" / "trees")
        with Job(installed, "-", 400) as job:
            library = installed / "lib" / "libgpuckpt.so"
            shutil.copy2(library, library.with_suffix(".new"))
            library.with_suffix(".new").rename(library)
            cycle(job, lambda: job.snapshot(job.process, "cli"))


def suspended(build):
    """A process that gave its memory back takes with it what others use; a snapshot meanwhile hangs, or is taken."""
    for program in ("lend", "handles"):
        with Job(build, "-", 60, 8, sim=True, program=program) as job:
            for _ in range(3):
                members = [job.process.pid, *job.workers()]
                waiting = job.random.sample(members, job.random.randint(1, len(members)))
                for pid in waiting:
                    job.cli("suspend", pid)
                refused = job.cli("checkpoint", job.process.pid, check=False)
                expect(refused.returncode == 14 and "suspended" in refused.stderr, refused.stderr)
                job.random.shuffle(waiting)
                for pid in waiting:
                    job.cli("resume", pid)
                job.wait_lines(len(job.lines()) + 3, job.process)
            # With memory of others, or theirs, the contexts are not given back.
            refused = job.cli("suspend", job.process.pid, "--release", check=False)
            expect(refused.returncode == 14 and "shared" in refused.stderr, refused.stderr)
            cycle(job, lambda: job.snapshot(job.process, "cli"))


def stopped(build):
    """Nothing happens after a snapshot with --stop, in no process."""
    with Job(build, "b") as job:
        workers = job.workers()
        done = job.cli("checkpoint", job.process.pid, "--stop", "--stop-status", "7")
        lines = len(job.lines())
        expect(job.finish(job.process, 20) == 7, "it ended with another status")
        begin = time.monotonic()
        while any(family.parents().get(w, (0, "Z"))[1] not in "ZX" for w in workers):
            expect(time.monotonic() - begin < 10, "a worker lives on")
            time.sleep(0.02)
        expect(len(job.lines()) == lines, "it went on")
        job.ends_well(job.restore(done.stdout.strip()))


def no_ids(build):
    """Where no process ids can be chosen a restore says so, with what to do, and nothing is left running. Root needs no namespace."""
    with Job(build, "b") as job:
        taken = job.snapshot(job.process, "cli")
        job.kill(job.process)
        job.process.wait()
        sandbox = build / "tests" / "features" / "support" / "sandbox"
        user = {"user": USER, "group": USER, "extra_groups": []} if os.getuid() == 0 and USER else {}
        for command, env in (([sandbox], {}), ([], {"GPUCKPT_NAMESPACES": "0"})):
            done = subprocess.run([*command, job.tools.gpuckpt, "restore", f"{job.store}@{taken}"], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, cwd="/", env=job.environment(**env), timeout=60, **user)
            said = done.returncode == 125 and "needs its old process ids: restore it as root" in done.stderr
            # (Its ids may be taken still, by what nobody has waited for.)
            expect(said or os.getuid() == 0 and not user and done.returncode == 0, f"{done.returncode}: {done.stderr}")
        job.ends_well(job.restore(taken))


def incremental(build):
    """The second and third snapshot write little and are right."""
    with Job(build, "b", 150) as job:
        taken = []
        for _ in range(3):
            taken.append(job.snapshot(job.process, "cli"))
            job.wait_lines(len(job.lines()) + 4, job.process)
        sizes = [s["sizes"]["new_bytes"] for s in job.snapshots()]
        expect(sizes[0] > 30 << 20 and max(sizes[1:]) < sizes[0] / 8, f"new bytes: {sizes}")
        job.kill(job.process)
        job.restore_some_lines(taken[2])
        job.restore_some_lines(taken[1])
        # A snapshot of a restored job is one as well.
        process = job.restore(taken[0])
        time.sleep(0.1)
        again = job.snapshot(process, "cli", process.restored_pid)
        job.kill(process)
        job.ends_well(job.restore(again))


def killed(build, rounds=8):
    """A member is killed at any moment of a snapshot: taken or not, nothing hangs, and the next one is right."""
    choice = random.Random(5)
    with Job(build, "k", 4000, 5) as job:
        codes = []
        for _ in range(rounds):
            victim = choice.choice(job.workers())
            asking = subprocess.Popen([str(job.tools.gpuckpt), "checkpoint", str(job.process.pid)], env=job.environment(),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      **({"user": job.user, "group": job.user, "extra_groups": []} if job.user else {}))
            time.sleep(choice.random() * 0.12)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
            _, words = asking.communicate(timeout=40)
            codes.append(asking.returncode)
            expect(asking.returncode == 0 or words.strip(), "failed without a word")
            job.wait_lines(len(job.lines()) + 3, job.process)
        job.compare(job.expected, prefix=True)
        print("exit codes:", codes)
        snapshot = job.snapshot(job.process, "cli")
        job.kill(job.process)
        job.restore_some_lines(snapshot)


def storm(build):
    """Children are born and end all the time, snapshots come by timer and by signals to anybody."""
    choice = random.Random(9)
    with Job(build, "s", 4000, 2, options=["--every", "400ms"]) as job:
        asked = [job.process.pid, *sorted(job.workers())[:2]]
        end = time.monotonic() + 4
        while time.monotonic() < end or (len(job.snapshots()) < 4 and time.monotonic() < end + 30):
            time.sleep(choice.random() * 0.4)
            os.kill(choice.choice(asked), signal.SIGUSR1)
        job.kill(job.process)
        job.compare(job.expected, prefix=True)
        taken = [s["id"] for s in job.snapshots()]
        print(f"{len(taken)} snapshots")
        expect(len(taken) >= 4, f"only {len(taken)} snapshots: {job.errors('out')}")
        for snapshot in [taken[-1], *sorted(choice.sample(taken[:-1], 2), reverse=True)]:  # the youngest first
            job.restore_some_lines(snapshot)


CASES = [shown, one_device, two_devices, shared_memory, locked_libc, shareable_handles, stranger, replaced, suspended, stopped, no_ids, incremental, killed, storm]


def main():
    global USER
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*")
    parser.add_argument("--build")
    parser.add_argument("--nobody", action="store_true")
    options = parser.parse_args()
    if options.nobody and os.getuid() == 0:
        USER = harness.NOBODY
    build = harness.find_build(options.build)

    def run(case, factor):
        Job.rest = factor
        case(build)

    cases = {c.__name__: lambda c=c: harness.slower(lambda factor: run(c, factor)) for c in CASES}
    return harness.run_cases({name: cases[name] for name in options.case or cases})


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
