"""One program under gpuckpt on whatever GPU there is: run, snapshot, kill, restore, compare; and, when that fails, everything that
helps to see why without a second visit to the machine. Used by bench/gpu/run."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
from random import Random
from pathlib import Path


class Failure(Exception):
    """What went wrong, in a line or two; the evidence lies in the job's folder."""


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        pass


class Job:
    """A program whose output is the same in every run. `logs` keeps what it and gpuckpt said; `work` the store and the output file
    (large, deleted at the end). Everything must be over at `deadline` (time.monotonic)."""

    def __init__(self, bench, name, command, deadline, env=None):
        self.bench, self.name, self.command, self.deadline = bench, name, [str(c) for c in command], deadline
        self.logs, self.work = bench.out / name, bench.work / name
        shutil.rmtree(self.work, ignore_errors=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True)
        self.env = {**bench.environment, "GPUCKPT_SESSION_DIR": str(bench.work / "session"), **(env or {})}
        self.store, self.output = self.work / "store", self.work / "output"
        self.processes, self.restores = [], 0

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and issubclass(kind, Exception):  # not when somebody ends us
            try:
                self.evidence()
            except Exception as error:  # noqa: BLE001: what failed first is what is reported
                (self.logs / "evidence.txt").write_text(repr(error))
        for process in self.processes:
            end_group(process)
        if self.output.exists():
            (self.logs / "output").write_bytes(self.output.read_bytes()[-200000:])
        shutil.rmtree(self.work, ignore_errors=True)

    def left(self, most=1e9):
        left = min(most, self.deadline - time.monotonic())
        if left <= 1:
            raise Failure("no time left")
        return left

    # ---- starting ----

    def popen(self, command, log, output=None, env=None):
        with open(output or self.logs / f"{log}.out", "ab") as sink, open(self.logs / f"{log}.err", "ab") as errors:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=sink, stderr=errors,
                                       cwd=self.work, env={**self.env, **(env or {})}, start_new_session=True)
        process.log = log
        self.processes.append(process)
        return process

    def reference(self, most=120):
        """The lines of an undisturbed run without gpuckpt, kept for all jobs with the same command."""
        key = tuple(self.command)
        if key not in self.bench.references:
            output = self.work / "reference"
            begin = time.monotonic()
            process = self.popen(self.command, "reference", output, env=self.bench.plain_environment)
            status = self.wait(process, most)
            self.bench.references[key] = (output.read_text(errors="replace").splitlines(), status, time.monotonic() - begin)
        lines, status, _ = self.bench.references[key]
        if status != 0:
            raise Failure(f"without gpuckpt it ends with {status}: {self.errors('reference')}")
        return lines

    def start(self, log="run", prefix=()):
        flavour = ["--sim"] if self.bench.sim else []
        return self.popen([*prefix, self.bench.gpuckpt, "run", *flavour, "--store", self.store, "--", *self.command], log,
                          self.output)

    def cli(self, *arguments, most=60, check=True):
        try:
            done = subprocess.run([str(self.bench.gpuckpt), *map(str, arguments)], env=self.env, stdin=subprocess.DEVNULL,
                                  cwd="/", capture_output=True, text=True, timeout=self.left(most))
        except subprocess.TimeoutExpired:
            raise Failure(f"gpuckpt {arguments[0]}: not ended after {most:.0f} s") from None
        with open(self.logs / "cli.log", "a") as log:
            log.write(f"$ gpuckpt {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}\n")
        if check and done.returncode != 0:
            raise Failure(f"gpuckpt {arguments[0]}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
        return done

    # ---- waiting ----

    def lines(self):
        return self.output.read_text(errors="replace").splitlines() if self.output.exists() else []

    def wait_lines(self, count, process, most=60):
        until = time.monotonic() + self.left(most)
        while len(self.lines()) < count:
            if process.poll() is not None:
                raise Failure(f"ended with {process.returncode} after {len(self.lines())} lines: {self.errors(process.log)}")
            if time.monotonic() > until:
                self.where(process)
                raise Failure(f"only {len(self.lines())} of {count} lines in time: {self.errors(process.log)}")
            time.sleep(0.005)

    def wait(self, process, most=120):
        try:
            return process.wait(self.left(most))
        except subprocess.TimeoutExpired:
            self.where(process)
            raise Failure(f"{process.log}: not ended after {most:.0f} s: {self.errors(process.log)}") from None

    def errors(self, log):
        path = self.logs / f"{log}.err"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return " / ".join(line for line in lines if not line.startswith("where:"))[-700:]

    # ---- snapshots ----

    def checkpoint(self, pid, *options, most=120):
        """Figures of one snapshot: what the command printed, the manifest's statistics, seconds of the whole."""
        begin = time.monotonic()
        done = self.cli("checkpoint", pid, "--json", *options, most=most)
        figures = {"seconds": round(time.monotonic() - begin, 3), **json.loads(done.stdout)}
        inspected = self.cli("inspect", f"{self.store}@{figures['id']}", "--json", check=False)
        if inspected.returncode == 0:
            figures["stats"] = json.loads(inspected.stdout).get("stats", {})
        return figures

    def restore(self, snapshot="latest", prefix=(), env=None):
        """Starts a restore; gives its process, with restored_pid and the seconds until the program ran again."""
        self.restores += 1
        log, pid_file = f"restore-{self.restores}", self.work / f"pid-{self.restores}"
        begin = time.monotonic()
        process = self.popen([*prefix, self.bench.gpuckpt, "restore", f"{self.store}@{snapshot}", "--pid-file", pid_file,
                              "--status-file", self.logs / f"{log}.status"], log, env=env)
        until = time.monotonic() + self.left(90)
        while not (pid_file.exists() and pid_file.read_text().strip()):
            if process.poll() is not None:
                if process.returncode == 0:
                    break
                raise Failure(f"restore: exit {process.returncode}: {self.errors(log)}")
            if time.monotonic() > until:
                self.where(process)
                raise Failure(f"restore: the program does not run: {self.errors(log)}")
            time.sleep(0.002)
        process.restored_pid = int(pid_file.read_text() or 0) if pid_file.exists() else 0
        process.restore_seconds = round(time.monotonic() - begin, 3)
        return process

    def kill(self, process, pid=None):
        os.kill(pid or process.pid, signal.SIGKILL)
        process.wait(30)

    def compare(self, prefix=False):
        """The output is the reference's; each restore may go back to an earlier line once, because what the killed program had
        written after the snapshot stays in the file."""
        expected, got = self.reference(), self.lines()
        position, returns = 0, self.restores
        for i, line in enumerate(got):
            if position < len(expected) and line == expected[position]:
                position += 1
            elif returns and line in expected[:position]:
                position, returns = expected.index(line) + 1, returns - 1
            else:
                raise Failure(f"line {i + 1} is {line!r}, not {expected[position] if position < len(expected) else 'the end'!r}")
        if not prefix and position != len(expected):
            raise Failure(f"it ends after line {position} of {len(expected)}")

    def cycle(self, moment=None, restores=2):
        """Snapshot in the middle, kill, restore (more than once, the last from a snapshot of the first), compare every line."""
        expected = self.reference()
        moment = moment or max(2, len(expected) // 3)
        process = self.start()
        self.wait_lines(moment, process, 90)
        figures = {"moment": moment, "snapshot": self.checkpoint(process.pid)}
        self.wait_lines(len(self.lines()) + 1, process)  # it goes on after the snapshot
        self.kill(process)
        self.compare(prefix=True)
        figures["restore_seconds"], figures["first_line_seconds"] = [], []
        for i in range(restores):
            begin = time.monotonic()
            restored = self.restore()
            before = self.output.stat().st_size  # the restore has put the file back to where it was
            while restored.poll() is None and self.output.stat().st_size == before and time.monotonic() < begin + 60:
                time.sleep(0.005)
            figures["first_line_seconds"].append(round(time.monotonic() - begin, 3))
            if i + 1 < restores:  # a snapshot of a restored program, for the next one
                time.sleep(0.2)
                if restored.poll() is None:
                    figures["snapshot_of_restored"] = self.checkpoint(restored.restored_pid)
                    self.kill(restored, restored.restored_pid)
                    figures["restore_seconds"].append(restored.restore_seconds)
                    continue
            status = self.wait(restored)
            figures["restore_seconds"].append(restored.restore_seconds)
            if status != 0:
                raise Failure(f"restored, it ended with {status}: {self.errors(restored.log)}")
            self.compare()
            break
        return figures

    def chain(self, count, seed):
        """`count` times: a snapshot at a random moment, a kill at another, a restore of that snapshot. Then every line is compared."""
        self.reference()
        random, process = Random(seed), self.start()
        pid, figures = process.pid, {"seed": seed, "stall_ms": [], "restore_seconds": []}
        self.wait_lines(2, process, 90)
        for _ in range(count):
            time.sleep(random.uniform(0.05, 0.6))
            if process.poll() is not None:
                break
            figures["stall_ms"].append(self.checkpoint(pid)["stall_us"] / 1e3)
            time.sleep(random.uniform(0, 0.3))
            self.kill(process, pid)
            process = self.restore()
            pid = process.restored_pid
            figures["restore_seconds"].append(process.restore_seconds)
        status = self.wait(process)
        if status != 0:
            raise Failure(f"after {len(figures['restore_seconds'])} restores it ended with {status}: {self.errors(process.log)}")
        self.compare()
        return figures

    # ---- evidence ----

    def where(self, process):
        """Stacks and system calls of a process group that does not get on, into where.txt."""
        with open(self.logs / "where.txt", "a") as sink:
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = stat.read_text().rpartition(")")[2].split()
                    if int(fields[2]) != process.pid and int(fields[3]) != process.pid:
                        continue
                    pid = stat.parent.name
                    sink.write(f"== {pid} {(stat.parent / 'cmdline').read_bytes()[:200]!r}\n")
                    for task in sorted((stat.parent / "task").glob("*")):
                        for part in ("comm", "stat", "wchan", "syscall"):
                            try:
                                sink.write(f"{task.name} {part}: {(task / part).read_text().strip()}\n")
                            except OSError:
                                pass
                    sink.flush()
                    if self.bench.where:
                        subprocess.run([str(self.bench.where), pid], stdout=sink, stderr=sink, timeout=15)
                    sink.write((stat.parent / "maps").read_text())
                except (OSError, subprocess.TimeoutExpired):
                    continue

    def again_traced(self):
        """The same restore once more under a tracer that reports every fatal signal with its stack."""
        if not self.bench.where or self.deadline - time.monotonic() < 8:
            return
        try:
            restored = self.restore(prefix=[self.bench.where, "--"], env={"GPUCKPT_LAUNCHER_DEBUG": "1"})
            self.wait(restored, min(30, self.deadline - time.monotonic() - 2))
        except (Failure, OSError):
            pass

    def evidence(self):
        """Where everything is that still lives, and what lies in the store."""
        for process in self.processes:
            if process.poll() is None:
                self.where(process)
                end_group(process)
        if self.restores:  # whatever went wrong with a restored program, it may do so again
            self.again_traced()
        for verb in (("list", self.store), ("inspect", f"{self.store}@latest"), ("inspect", f"{self.store}@latest", "--maps"),
                     ("inspect", f"{self.store}@latest", "--allocations"), ("verify", self.store)):
            try:
                if self.store.exists() and self.deadline - time.monotonic() > 3:
                    self.cli(*verb, most=15, check=False)
            except Failure:
                pass

    def first_words(self):
        """The lines in which gpuckpt or the tracer said what was wrong, for the table."""
        found = []
        for path in sorted(self.logs.glob("*.err")):
            for line in path.read_text(errors="replace").splitlines():
                if re.search(r"where: thread .* got signal|gpuckpt.*(cannot|fail|refus|differ|error)|simgpu:", line):
                    found.append(f"{path.name}: {line[:240]}")
        return found[-6:]
