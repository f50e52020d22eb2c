#!/usr/bin/env python3
"""A program whose control group leaves little memory is not harmed by a snapshot: memory_limit_test.py CASE [--build DIR].

  fits    15 MiB are left of the limit: the snapshot is taken, nobody is ended for want of memory, the restored program is
          right; the helper processes are those that the kernel would end first
  tight   5 MiB are left: refused with the numbers, and the program goes on
  restore a job that needs more than the limit is not started: refused with the numbers, and the next restore is right

Skipped where a memory group cannot be made (root, and either hierarchy mounted for writing).
"""
import json
import os
import sys
import threading
import time
from pathlib import Path

from features_test import Failure, Run
from one_case import case_options, run_case

MIB = 1 << 20
LARGE = 60


class Group:
    """A memory group of its own, of whichever hierarchy there is."""

    def __init__(self):
        name = f"gpuckpt-test-{os.getpid()}"
        unified, old = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
        if (old / "memory.limit_in_bytes").exists():
            self.path, self.limit, self.usage = old / name, "memory.limit_in_bytes", "memory.usage_in_bytes"
        elif "memory" in self.read(unified / "cgroup.subtree_control").split():
            self.path, self.limit, self.usage = unified / name, "memory.max", "memory.current"
        else:
            raise OSError("no memory controller")
        self.path.mkdir()

    @staticmethod
    def read(path):
        return path.read_text() if path.exists() else ""

    def limit_to(self, room):
        (self.path / self.limit).write_text(str(room))

    def leave(self, room):
        (self.path / self.limit).write_text(str(int(self.read(self.path / self.usage)) + room))

    def processes(self):
        return [int(p) for p in self.read(self.path / "cgroup.procs").split()]

    def ended_by_kernel(self):
        for name in ("memory.oom_control", "memory.events"):
            for line in self.read(self.path / name).splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        raise Failure("the group does not count whom the kernel ended")

    def remove(self):
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)


class Watch(threading.Thread):
    """The processes in the group while a snapshot is taken, and their OOM scores: {name: oom_score_adj}."""

    def __init__(self, group):
        super().__init__(daemon=True)
        self.group, self.seen, self.stop = group, {}, False

    def run(self):
        while not self.stop:
            for pid in self.group.processes():
                try:
                    name, score = ((Path(f"/proc/{pid}") / f).read_text().strip() for f in ("comm", "oom_score_adj"))
                except OSError:
                    continue  # it has just ended
                self.seen[name] = max(int(score), self.seen.get(name, -1000))
            time.sleep(0.002)


def start(run, group):
    enter = f'echo $$ > {group.path}/cgroup.procs && exec "$@"'
    program = run.build / "tests" / "features" / "support" / "large"
    process = run.popen(["sh", "-c", enter, "sh", program, LARGE], "out", "err", LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    return process


def fits(run, group):
    process = start(run, group)
    group.leave(15 * MIB)
    watch = Watch(group)
    watch.start()
    for _ in range(2):
        done = run.checkpoint(process.pid)
        if done.returncode != 0:
            raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
    watch.stop = True
    watch.join()
    if group.ended_by_kernel() or process.poll() is not None:
        raise Failure(f"{group.ended_by_kernel()} processes were ended for want of memory")
    if watch.seen.get("gpuckpt-writer") != 1000 or watch.seen.get("large") != 0:
        raise Failure(f"oom_score_adj: {watch.seen}")
    run.kill(process)
    process, _ = run.restore(1)
    run.release()
    run.finish(process)


def tight(run, group):
    process = start(run, group)
    group.leave(5 * MIB)
    done = run.checkpoint(process.pid)
    if done.returncode != 14 or "MiB of memory are left of the" not in done.stderr or str(group.path) not in done.stderr:
        raise Failure(f"not refused as it should be: exit {done.returncode}: {done.stderr.strip()}")
    if group.ended_by_kernel():
        raise Failure("a process was ended for want of memory")
    run.release()
    run.finish(process)


def restore(run, group):
    process = run.popen([run.build / "tests" / "features" / "support" / "large", LARGE], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    done = run.checkpoint(process.pid)
    if done.returncode != 0:
        raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
    run.kill(process)
    enter = f'echo $$ > {group.path}/cgroup.procs && exec "$@"'

    def attempt(room, *options):
        group.limit_to(room)
        return ["sh", "-c", enter, "sh", run.build / "bin" / "gpuckpt", "restore", run.work / "store", *options]

    for options in ((), ("--dry-run",)):
        process = run.popen(attempt(LARGE * MIB // 2, "--status-file", run.work / "status", *options), "restore", "restore.err")
        code, told = process.wait(30), (run.work / "restore.err").read_text()
        if code != (12 if options else 125) or "the job takes" not in told or f"control group {group.path} are free" not in told:
            raise Failure(f"not refused as it should be: exit {code}: {told}")
        (run.work / "restore.err").unlink()
    if json.loads((run.work / "status").read_text())["code"] != 12 or group.ended_by_kernel():
        raise Failure(f"{(run.work / 'status').read_text()}; {group.ended_by_kernel()} processes were ended for want of memory")
    # With swap it could work, and by reading memory as it is touched: with a word.
    process = run.popen(attempt(LARGE * MIB // 2, "--lazy", "--dry-run"), "restore", "restore.err")
    if process.wait(30) != 0 or "warning: the job takes" not in (run.work / "restore.err").read_text():
        raise Failure(f"--lazy: exit {process.returncode}: {(run.work / 'restore.err').read_text()}")
    run.release()
    run.finish(run.popen(attempt((LARGE + 15) * MIB), "restore", "restore.err"))


def main():
    cases = {"fits": fits, "tight": tight, "restore": restore}
    options = case_options(__doc__, cases)
    try:
        group = Group()
    except OSError as error:
        print(f"skipped: no memory group can be made here: {error}")
        sys.exit(77)
    try:
        run_case(Run("memory_limit", "root", options.build), options.case, lambda run: cases[options.case](run, group))
    finally:
        group.remove()


if __name__ == "__main__":
    main()
