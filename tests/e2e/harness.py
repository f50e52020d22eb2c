"""Runs programs under gpuckpt on the simulated GPU: snapshots them, kills them, restores them, compares what they print.

A subject is a program whose output is the same in every run. Its output goes to a file, so that a restore has to put
the file back to where it was; what the file holds in the end must be what an uninterrupted run writes.
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests"))
import ordinary_user  # noqa: E402
from ordinary_user import NOBODY  # noqa: E402

TEXT = "/usr/share/common-licenses/GPL-3"


def limit_processor_time(seconds):
    """Programs run in sessions of their own; none may spin on when the test that started it is ended."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


limit_processor_time(300)


class Failure(Exception):
    """What went wrong, with what is needed to see it again."""


# How a command says that the process it was to reach has ended, by the moment at which it did (exit 10).
HAS_ENDED = "there is no process", "has ended already", "before it took the command"


class TooLate(Failure):
    """The program came to its end before its snapshot did: on a busy machine nobody's fault."""


def slower(run):
    """run(factor): again with longer rests between a program's steps, `factor` times as long, as long as it comes too late."""
    for factor in 1, 3, 10:
        try:
            return run(factor)
        except TooLate as late:
            latest = late
            print(f"once more, slower: {late}", flush=True)
    raise latest


def unhurried(case):
    """case(), again and slower as long as a program of Tools.subject() ends too early for it."""
    def run(factor):
        Tools.rest = factor
        try:
            return case()
        finally:
            Tools.rest = 1
    return slower(run)


def find_build(given=None):
    return Path(given or os.environ.get("GPUCKPT_BUILD") or SOURCE / "build").resolve()


class Paced(list):
    """A command whose program rests between its steps, to be met there by a snapshot. at_once: the same without rests; it prints
    the same."""

    def __init__(self, before, pace_ms, after=()):
        super().__init__([*before, pace_ms, *after])
        self.at_once = [*before, 0, *after]


class Tools:
    """Where the programs under test are, and how to call them."""

    def __init__(self, build, sim=True):
        self.build, self.sim = build, sim
        self.gpuckpt = build / "bin" / "gpuckpt"
        self.python = SOURCE / ".venv" / "bin" / "python"

    rest = 1  # so many times as long do subjects rest between their steps

    def interrupt(self, name, run, steps=100):
        """run(command of the subject `name`), which is to be met by a snapshot before its end."""
        return slower(lambda factor: run(self.subject(name, steps, 15 * factor)))

    def subject(self, name, steps=100, pace_ms=15):
        """The command of a subject, by name."""
        pace_ms *= self.rest
        if name == "train_charlm":
            return Paced([self.build / "examples" / "train_charlm", "--steps", steps, "--pace-ms"], pace_ms, [TEXT])
        if name == "train.py":
            return Paced([self.python, SOURCE / "examples" / "train.py", "--steps", steps, "--pace-ms"], pace_ms, [TEXT])
        folder = "programs" if name == "counter" else "subjects"
        return Paced([self.build / "tests" / folder / name, steps], pace_ms)

    def subjects(self):
        folder = self.build / "tests" / "subjects"
        own = sorted(p.name for p in folder.glob("*") if os.access(p, os.X_OK) and p.is_file()) if folder.is_dir() else []
        return ["train_charlm", "train.py", *own]


class Session:
    """One work folder with one store, used as root or as nobody."""

    def __init__(self, tools, seed=0, user=None, keep=False):
        self.tools, self.keep = tools, keep
        self.random = random.Random(seed)
        self.user = user if os.getuid() == 0 else None
        if self.user is not None:
            ordinary_user.require(tools.build)
        # Not the usual temporary folder's first level: its name tells what a left-over folder is.
        self.work = Path(tempfile.mkdtemp(prefix="gpuckpt-e2e-"))
        self.store = self.work / "store"
        self.processes = []
        if self.user is not None:
            os.chown(self.work, self.user, self.user)
        os.chmod(self.work, 0o755)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for process in self.processes:
            if process.poll() is None:
                for pid in (getattr(process, "restored_pid", 0), process.pid):
                    try:
                        if pid:
                            os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                process.wait()
        if (kind is None and not self.keep) or kind is TooLate:
            shutil.rmtree(self.work, ignore_errors=True)
        elif kind is not None:
            value.work = self.work
            print(f"left for inspection: {self.work}", flush=True)

    # ---- starting programs ----

    def environment(self, **extra):
        """What a fresh shell has: nothing of the test's own environment."""
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.work), "LANG": "C.UTF-8",
                "GPUCKPT_SESSION_DIR": str(self.work / "session"), "SIMGPU_SEED": str(self.random.getrandbits(31))}
        if not self.tools.sim:  # where the machine keeps its driver and toolkit is not ours to know
            base |= {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")}
        for name in ("GPUCKPT_LOG", "ASAN_OPTIONS", "UBSAN_OPTIONS", "GPUCKPT_LAUNCHER_DEBUG"):
            if name in os.environ:
                base[name] = os.environ[name]
        return {**base, **{k: str(v) for k, v in extra.items()}}

    gives_files = True  # what a program of another user writes to belongs to that user

    def popen(self, command, out, cwd=None, **env):
        options = {"user": self.user, "group": self.user, "extra_groups": []} if self.user is not None else {}
        mode = "ab" if Path(out).exists() else "wb"
        with open(out, mode) as sink, open(f"{out}.err", "ab") as errors:
            if self.user is not None and self.gives_files:
                os.fchown(sink.fileno(), self.user, self.user)
                os.fchown(errors.fileno(), self.user, self.user)
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=sink, stderr=errors,
                                       cwd=cwd or self.work, env=self.environment(**env), start_new_session=True,
                                       **options)
        self.processes.append(process)
        return process

    def cli(self, *arguments, timeout=60, check=True, cwd="/"):
        """Runs a verb of gpuckpt to its end; returns the completed process."""
        options = {"user": self.user, "group": self.user, "extra_groups": []} if self.user is not None else {}
        done = subprocess.run([str(self.tools.gpuckpt), *map(str, arguments)], cwd=cwd, env=self.environment(),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **options)
        if done.returncode != 0:
            said = f"gpuckpt {' '.join(map(str, arguments))}: exit {done.returncode}: {done.stdout.strip()} {done.stderr.strip()}"
            if self.is_over():
                raise TooLate(said)
            if check:
                raise Failure(said)
        return done

    def is_over(self):
        """Has the program come to its end, so that no command can reach it any more? Known to who has one at a time."""
        return False

    def plain(self, command, out, timeout=120, **env):
        """The program on the simulated GPU without gpuckpt."""
        if self.tools.sim:
            env["LD_LIBRARY_PATH"] = self.tools.build / "lib" / "simgpu"
        process = self.popen(command, out, **env)
        return self.finish(process, timeout, command)

    def run(self, command, out="out", options=(), **env):
        flavour = ["--sim"] if self.tools.sim else []
        return self.popen([self.tools.gpuckpt, "run", *flavour, "--store", self.store, *options, "--", *command],
                          self.work / out, **env)

    restore_limit = 60  # seconds

    def restore(self, snapshot="latest", options=(), out="restore", **env):
        """From the root folder, with a fresh environment. The program's own output goes where it went before."""
        pid_file = self.work / f"pid-{self.random.getrandbits(32):x}"
        begin = time.monotonic()
        process = self.popen([self.tools.gpuckpt, "restore", f"{self.store}@{snapshot}", "--pid-file", pid_file,
                              *options], self.work / out, cwd="/", **env)
        while not pid_file.exists() or not pid_file.read_text().strip():
            if process.poll() is not None:
                if process.returncode == 0:  # a program can end at once
                    break
                raise Failure(f"restore of {snapshot}: exit {process.returncode}: {self.errors(out)}")
            if time.monotonic() - begin > self.restore_limit:
                raise Failure(f"restore of {snapshot}: not running after {self.restore_limit} s: {self.errors(out)}")
            time.sleep(0.01)
        process.restored_pid = int(pid_file.read_text() or 0) if pid_file.exists() else 0
        process.restore_seconds = time.monotonic() - begin
        return process

    def errors(self, out):
        path = self.work / f"{out}.err"
        return path.read_text(errors="replace")[-1500:].strip() if path.exists() else ""

    # ---- waiting and comparing ----

    def lines(self, out="out"):
        path = self.work / out
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def wait_lines(self, count, process, out="out", timeout=60):
        begin = time.monotonic()
        while len(self.lines(out)) < count:
            if process.poll() is not None:
                raise Failure(f"ended with {process.returncode} after {len(self.lines(out))} lines: {self.errors(out)}")
            if time.monotonic() - begin > timeout:
                raise Failure(f"only {len(self.lines(out))} of {count} lines after {timeout} s: {self.errors(out)}")
            time.sleep(0.005)

    def finish(self, process, timeout=120, what=""):
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"{what or process.args}: not ended after {timeout} s") from None

    def kill(self, process, pid=None):
        self.signal(pid or process.pid, signal.SIGKILL)
        process.wait(30)

    def lose_store(self):
        """Removes the store of a program that was killed; its writer may still be taking its own files away."""
        begin = time.monotonic()
        while os.path.exists(self.store):
            if time.monotonic() - begin > 30:
                raise Failure(f"{self.store} is still filled 30 s after its program was killed")
            shutil.rmtree(self.store, ignore_errors=True)

    @staticmethod
    def signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            raise TooLate(f"process {pid} ended before it got {signal.Signals(number).name}") from None

    def snapshots(self):
        """Ids of the published snapshots, oldest first."""
        done = self.cli("list", self.store, "--json", check=False)
        if done.returncode == 10:
            return []
        if done.returncode not in (0, 3):
            raise Failure(f"list: exit {done.returncode}: {done.stderr.strip()}")
        listed = json.loads(done.stdout)
        return listed["snapshots"] if isinstance(listed, dict) else listed

    def wait_snapshot(self, known, process, timeout=60, out="out"):
        """The snapshot that was not there before."""
        begin = time.monotonic()
        while True:
            ended = process.poll() == 0
            for snapshot in self.snapshots():
                if snapshot["id"] not in known:
                    return snapshot["id"]
            if ended:
                raise TooLate(f"no snapshot before the program ended: {self.errors(out)}")
            if time.monotonic() - begin > timeout:
                raise Failure(f"no snapshot after {timeout} s; program "
                              f"{'runs' if process.poll() is None else process.returncode}: {self.errors(out)}")
            time.sleep(0.05)

    def compare(self, expected, out="out", prefix=False):
        got = self.lines(out)
        if prefix:
            expected = expected[:len(got)]
        if got == expected:
            return
        for i, (a, b) in enumerate(zip(expected, got)):
            if a != b:
                raise Failure(f"{out}: line {i + 1} is {b!r}, not {a!r}")
        raise Failure(f"{out}: {len(got)} lines, not {len(expected)}")

    # ---- snapshots ----

    def snapshot(self, process, how="signal", pid=None, timeout=60, out="out"):
        pid = pid or process.pid
        known = {s["id"] for s in self.snapshots()}
        if how == "cli":
            done = self.cli("checkpoint", pid, "--timeout", f"{timeout}s", timeout=timeout + 30, check=False)
            if not is_taken(done):
                kind = TooLate if process.poll() == 0 else Failure
                raise kind(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
            found = done.stdout.strip().splitlines()[-1]
            if found in known or found not in {s["id"] for s in self.snapshots()}:
                raise Failure(f"checkpoint printed {found!r}, which list does not know as new")
            return found
        if how == "signal":
            self.signal(pid, signal.SIGUSR1)
        return self.wait_snapshot(known, process, timeout, out)


_references = {}


# A program with connections to others has them reset by a restore, and that is told (exit 3); nothing else may be.
# Many of one kind are counted after the first ones.
CONNECTIONS = ("a restore finds it reset", "a restore finds them reset", "a restore finds it closed at the other end", "more of this kind")


def is_taken(done, may_tell=CONNECTIONS):
    told = [line for line in done.stderr.splitlines() if "warning:" in line]
    return done.returncode == (3 if told else 0) and all(any(w in line for w in may_tell) for line in told)


def reference(tools, command, user=None, timeout=120):
    """What the subject prints when nobody disturbs it, without gpuckpt."""
    command = getattr(command, "at_once", command)
    key = (tuple(map(str, command)), user)
    if key not in _references:
        with Session(tools, user=user) as session:
            status = session.plain(command, session.work / "out", timeout)
            _references[key] = (session.lines(), status)
            if status != 0:
                raise Failure(f"{command}: exit {status} without gpuckpt: {session.errors('out')}")
    return _references[key]


def cycle(tools, command, seed, how="signal", user=None, restores=1, go_on=False, chain=0, keep=False, options=(), restore_options=()):
    """Snapshot at a random moment, end it, restore, compare. Returns a few figures.

    go_on: the program runs to its end first, and what it wrote must be right; then it is restored as well.
    restores: so many times from the same snapshot. chain: further snapshots, each taken of the restored program.
    """
    expected, status = reference(tools, command, user)
    with Session(tools, seed, user, keep) as session:
        moment = session.random.randint(2, max(2, len(expected) * 2 // 3))
        process = session.run(command, options=options)
        session.wait_lines(moment, process)
        time.sleep(session.random.random() * 0.05)
        snapshot = session.snapshot(process, how)
        if go_on:
            ended = session.finish(process)
            if ended != status:
                raise Failure(f"went on after the snapshot and ended with {ended}: {session.errors('out')}")
            session.compare(expected)
        else:
            time.sleep(session.random.random() * 0.1)
            session.kill(process)
            session.compare(expected, prefix=True)
        seconds = []
        for _ in range(restores):
            for _ in range(chain):
                restored = session.restore(snapshot, restore_options)
                time.sleep(session.random.random() * 0.1)
                if restored.poll() is not None:
                    break
                try:
                    snapshot = session.snapshot(restored, how, pid=restored.restored_pid)
                except (Failure, ProcessLookupError) as failure:
                    # It ended by itself before the snapshot; its launcher may need a moment for that.
                    if restored.poll() is None and "ended before" in str(failure):
                        session.finish(restored, 10)
                    if restored.poll() is None:
                        raise
                    break
                if restored.poll() is None:
                    session.kill(restored, restored.restored_pid)
            restored = session.restore(snapshot, restore_options)
            seconds.append(restored.restore_seconds)
            ended = session.finish(restored)
            if ended != status:
                raise Failure(f"restored, it ended with {ended}: {session.errors('restore')} {session.errors('out')}")
            session.compare(expected)
        return {"moment": moment, "restore_seconds": max(seconds)}


def run_cases(cases):
    """Runs every case ({name: callable}) and says what came of it. The exit status: 1 when one of them failed."""
    failures = 0
    for name, case in cases.items():
        try:
            unhurried(case)
            print(f"ok {name}", flush=True)
        except Exception as failure:  # noqa: BLE001: the other cases are still worth knowing
            failures += 1
            print(f"FAILED {name}: {failure!r}", flush=True)
    return 1 if failures else 0


def run_in_sessions(cases, make_session, wanted):
    """run_cases() for functions that take a session: each gets a new one. `wanted`: names; empty: all."""
    def run(case):
        with make_session() as session:
            case(session)
    return run_cases({case.__name__: (lambda case=case: run(case)) for case in cases if not wanted or case.__name__ in wanted})


def run_timed(cases, wanted):
    """Runs every case ({name: callable}, which may return a note) and says how long it took. The exit status: 1 when one failed."""
    failures = 0
    for name, case in cases.items():
        if wanted and name not in wanted:
            continue
        begin = time.monotonic()
        try:
            note = unhurried(case)
            print(f"ok {name}{' ' + note if note else ''} in {time.monotonic() - begin:.1f} s", flush=True)
        except (Failure, subprocess.TimeoutExpired) as failure:
            failures += 1
            print(f"FAILED {name}: {failure}", flush=True)
    return 1 if failures else 0


def wait_for(what, condition, seconds=40):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise Failure(f"not within {seconds} s: {what}")
