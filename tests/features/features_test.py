#!/usr/bin/env python3
"""Small programs with one kernel feature each, snapshot and restored: features_test.py FLAVOUR [FEATURE...] [--build DIR]

A program sets its feature up, prints "ready" and waits for the file go_on; then it checks the feature and prints
"survived". Flavours:
  plain    no gpuckpt at all: is the program right?
  go_on    snapshot, and the program goes on
  root     snapshot, kill -9, restore
  readback the same, and all that /proc tells of the program is compared with what it told before (root only)
  nobody   the same as user nobody (only for root to ask for)
  stop     snapshot with --stop, restore
  twice    restored, snapshot again, killed, restored
  lazy     the same with restore --lazy, the memory_ programs only: they do their work before their pages are there
  twice_nobody, lazy_nobody  the same as user nobody, whose kernel does not wait for pages
  written  the memory_ programs, whose memory is written by process_vm_writev, as where there is no userfaultfd
  from_file the memory_ programs, whose memory comes by a file, as where no process may write to another
  sandbox  all of it under a container's system call filter, as user nobody: no namespaces, so the ids are new
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from huge_pool import HugePages

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "kernel")]
import ordinary_user
import outcomes
import readback
from ordinary_user import NOBODY

# How a restore gives a program its memory where the usual way, a userfaultfd, is not to be had.
FILLED_BY = {"written": {"GPUCKPT_FILL": "write"}, "from_file": {"GPUCKPT_FILL": "file"}}
HUGE_PAGES = 16  # that each of the programs may have that need some


def may_unshare():
    """May every user who runs these programs make namespaces?"""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    return subprocess.run(["unshare", "-Un", "true"], capture_output=True, cwd="/", **user).returncode == 0


def usual_signals():
    """A shell has what it runs in the background ignore these, and the programs would go on ignoring them."""
    for number in signal.SIGINT, signal.SIGQUIT:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


class Failure(Exception):
    pass


class Absent(Exception):
    """The kernel or the machine does not have what the program is about."""


def failure_text(work):
    text = ""
    for name in ("out", "err", "restore.err"):
        path = work / name
        if path.exists():
            text += f"\n  {name}: " + path.read_text(errors="replace")[-1200:].strip().replace("\n", "\n    ")
    return text


class Run:
    """One program in one folder."""

    SOURCE = Path(__file__).resolve().parent  # of the programs
    FOLDER = "features"  # of the build: where they are
    OUTCOMES = outcomes.Features

    def __init__(self, feature, flavour, build):
        self.user = NOBODY if flavour.endswith(("nobody", "sandbox")) and os.getuid() == 0 else None
        self.feature, self.flavour, self.build = feature, flavour.removesuffix("_nobody"), build
        if self.user is not None:
            ordinary_user.require(build)
        self.work = Path(tempfile.mkdtemp(prefix=f"gpuckpt-{feature[:24]}-"))
        self.started = []
        self.restored = []  # programs, which outlive `gpuckpt restore` where that is killed
        self.known = set()  # of readback.KNOWN of the folder, what was met
        if self.user is not None:
            os.chown(self.work, self.user, self.user)

    def environment(self, **extra):
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.work), "LANG": "C.UTF-8",
                "GPUCKPT_SESSION_DIR": str(self.work / "session"), "GPUCKPT_STORE": str(self.work / "store")}
        if self.flavour == "sandbox":
            base["ASAN_OPTIONS"] = "detect_leaks=0"  # which it looks for by ptrace
        if "GPUCKPT_LOG" in os.environ:
            base["GPUCKPT_LOG"] = os.environ["GPUCKPT_LOG"]
        return {**base, **extra}

    def identity(self):
        return {"user": self.user, "group": self.user, "extra_groups": []} if self.user is not None else {}

    def under_filter(self):
        """Does wrapped() set a system call filter?"""
        return self.flavour == "sandbox"

    def wrapped(self, command):
        sandbox = [self.build / "tests" / "features" / "support" / "sandbox"] if self.flavour == "sandbox" else []
        return [str(c) for c in (*sandbox, *command)]

    def popen(self, command, out, err, **env):
        if self.under_filter() and "LD_PRELOAD" in env:  # a filter set under the library is one of the program's own
            command = ["env", f"LD_PRELOAD={env.pop('LD_PRELOAD')}", *command]
        # (A log that a program was started with open for appending is not cut by a restore.)
        sink, errors = (open(self.work / f, "ab" if (self.work / f).exists() else "wb") for f in (out, err))
        with sink, errors:
            if self.user is not None:
                os.fchown(sink.fileno(), self.user, self.user)
                os.fchown(errors.fileno(), self.user, self.user)
            process = subprocess.Popen(self.wrapped(command), stdin=subprocess.DEVNULL, stdout=sink, stderr=errors,
                                       cwd=self.work, env=self.environment(**env), start_new_session=True,
                                       **self.identity())
        self.started.append(process)
        return process

    def until(self, condition, process, what, seconds=60):
        begin = time.monotonic()
        pause = 0.005
        while not condition():
            if process.poll() is not None and not condition():
                raise Failure(f"ended with {process.returncode} {what}")
            if time.monotonic() - begin > seconds:
                raise Failure(f"nothing after {seconds} s {what}")
            time.sleep(pause)
            pause = min(pause * 1.3, 0.05)

    def says(self, word):
        path = self.work / "out"
        return path.exists() and word in path.read_text(errors="replace").split("\n")

    def checkpoint(self, pid, *more):
        return subprocess.run(self.wrapped([self.build / "bin" / "gpuckpt", "checkpoint", pid, *more]), cwd="/",
                              env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=90, **self.identity())

    def features(self):
        """What the program is about."""
        return [self.feature]

    def command(self):
        return [self.build / "tests" / self.FOLDER / self.feature]

    def as_told(self, done):
        """Is the snapshot there, and told of it what may be told?"""
        told = [line for line in done.stderr.splitlines() if "warning:" in line]
        words = []
        for told_of in (self.OUTCOMES.TOLD[f] for f in self.features() if f in self.OUTCOMES.TOLD):
            words += [told_of] if isinstance(told_of, str) else told_of
        return done.returncode == (3 if told else 0) and all(any(w in line for w in words) for line in told)

    def kill(self, process, pid=None):
        os.kill(pid or process.pid, signal.SIGKILL)
        process.wait(30)

    def restore(self, number, *more, **env):
        pid_file = self.work / f"pid{number}"
        process = self.popen([self.build / "bin" / "gpuckpt", "restore", f"{self.work / 'store'}@latest", "--pid-file",
                              pid_file, *more], "restore", "restore.err", **env)
        self.until(lambda: pid_file.exists() and pid_file.read_text().strip(), process, "instead of being restored")
        self.restored.append(int(pid_file.read_text()))
        return process, self.restored[-1]

    def unknown_differences(self, before, after):
        for difference in readback.differences(before, after, self.feature in readback.COME_AND_GO):
            known = readback.reason(self.FOLDER, self.feature, difference)
            self.known.add(known)
            if known is None:
                yield difference[:300]

    def state(self, pid):
        return readback.state_of(pid)

    def compare(self, befores, pid):
        """One of the readings before and one after are the same, but for what is known to differ."""
        for after in readback.readings(lambda: self.state(pid)):
            unknown = min((list(self.unknown_differences(before, after)) for before in befores), key=len)
            if not unknown:
                return
        raise Failure("is not as it was:\n    " + "\n    ".join(unknown))

    def release(self):
        (self.work / "go_on").touch()

    def finish(self, process):
        try:
            status = process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure("does not end") from None
        if status != 0 or not self.says("survived"):
            raise Failure(f"ended with {status}")

    def go(self):
        preload = {} if self.flavour == "plain" else {"LD_PRELOAD": str(self.build / "lib" / "libgpuckpt.so")}
        process = self.popen(self.command(), "out", "err", **preload)
        self.until(lambda: self.says("ready") or process.poll() == 77, process, "before it was ready")
        if process.poll() == 77:
            raise Absent((self.work / "out").read_text().strip())
        if self.flavour == "plain":
            self.release()
            return self.finish(process)
        done = self.checkpoint(process.pid, *(("--stop",) if self.flavour == "stop" else ()))
        if words := self.OUTCOMES.REFUSED.get(self.feature):
            if done.returncode != 14 or not all(w in done.stderr for w in words):
                raise Failure(f"not refused as it should be: exit {done.returncode}: {done.stderr.strip()}")
            self.release()
            return self.finish(process)
        if not self.as_told(done) or self.feature in self.OUTCOMES.MUST_TELL and done.returncode == 0:
            raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
        if self.flavour == "go_on":
            self.release()
            return self.finish(process)
        befores = list(readback.readings(lambda: self.state(process.pid), rounds=3)) if self.flavour == "readback" else []
        if self.flavour == "stop":
            self.until(lambda: process.poll() is not None, process, "after checkpoint --stop")
        else:
            self.kill(process)
        (self.work / "was_restored").touch()
        lazy = ("--lazy",) if self.flavour == "lazy" else ()
        process, pid = self.restore(1, *lazy, **FILLED_BY.get(self.flavour, {}))
        if befores:
            self.compare(befores, pid)
        if self.flavour in ("twice", "lazy"):
            done = self.checkpoint(pid)
            if not self.as_told(done):
                raise Failure(f"checkpoint of the restored program: exit {done.returncode}: {done.stderr.strip()}")
            self.kill(process, pid)
            process, pid = self.restore(2, *lazy, GPUCKPT_LAZY_DELAY_MS="400")
            if lazy and "--lazy is not possible" in (self.work / "restore.err").read_text():
                raise Failure("was not lazy")
        self.release()
        self.finish(process)

    def lost_its_terminal(self):
        """Another process of this machine took the number of the program's pseudo terminal before the restore, which said so."""
        path = self.work / "restore.err"
        return path.exists() and re.search(r"warning: (/dev/pts/\d+) is /dev/pts/\d+ now", path.read_text(errors="replace"))

    def end_program(self, pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"GPUCKPT_STORE={self.work}/store".encode() in f.read().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # it has ended

    def run(self):
        begin = time.monotonic()
        wrong = self.absent = None
        try:
            self.go()
        except Absent as what:
            self.absent = str(what)
        except (Failure, subprocess.TimeoutExpired, OSError) as failure:
            wrong = f"{failure}{failure_text(self.work)}"
        self.excused = wrong is not None and self.lost_its_terminal()
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in self.restored:
            self.end_program(pid)
        shutil.rmtree(self.work, ignore_errors=True)
        return wrong, time.monotonic() - begin


def program_names(folder):
    """The programs in the rooms of tests/features or tests/trees: what drives them is in support and programs."""
    return sorted(p.stem for p in folder.glob("*/*.c") if p.parent.name not in ("support", "programs") and not p.stem.endswith("_library"))


def main(kind=Run):
    """`kind`: Run, or what a folder of other programs makes of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flavour", choices=["plain", "go_on", "root", "readback", "nobody", "stop", "twice", "twice_nobody", "lazy",
                                            "lazy_nobody", "written", "from_file", "sandbox"])
    parser.add_argument("feature", nargs="*", help="names, or beginnings of names (default: all)")
    parser.add_argument("--build", type=Path, default=kind.SOURCE.parents[1] / "build")
    parser.add_argument("--exactly", action="store_true", help="whole names, not beginnings; exit 77 where it cannot run here")
    parser.add_argument("--jobs", type=int, default=6)
    options = parser.parse_args()
    usual_signals()
    every = program_names(kind.SOURCE)
    if "refused_network" in every and not may_unshare():
        every.remove("refused_network")
    if options.exactly:
        if unknown := [f for f in options.feature if f not in every]:
            sys.exit("no such feature: " + " ".join(unknown))
        chosen = [f for f in every if f in options.feature]
    else:
        chosen = [f for f in every if not options.feature or any(f.startswith(p) for p in options.feature)]
    if options.flavour == "readback" and os.getuid() != 0:
        print("skipped: only root may read all that /proc tells of a program")
        sys.exit(77)
    missing = dict(kind.OUTCOMES.NOT_IN.get(options.flavour, {}))
    if (os.getuid() != 0 or options.flavour.endswith("_nobody")) and options.flavour != "plain":
        missing |= kind.OUTCOMES.NOT_IN.get("nobody", {})
    chosen = [f for f in chosen if f not in missing]
    chosen = [f for f in chosen if f not in kind.OUTCOMES.REFUSED or options.flavour in ("plain", "go_on", "nobody")]
    if options.flavour == "readback":
        chosen = [f for f in chosen if f not in readback.NEVER_STILL]
    if options.flavour in ("lazy", "lazy_nobody", *FILLED_BY):
        chosen = [f for f in chosen if f.startswith("memory_")]
    if not chosen and options.exactly:
        print("skipped: " + " ".join(options.feature))
        sys.exit(77)
    if not chosen:
        sys.exit("no such feature")
    huge = [f for f in chosen if "hugetlb" in f]
    with HugePages(HUGE_PAGES * len(huge)) as there:
        if huge and not there:
            print("skipped: " + " ".join(huge) + ": no huge pages here, and we may not make some (vm.nr_hugepages)")
            chosen = [f for f in chosen if f not in huge]
            if not chosen:
                sys.exit(77)
        sys.exit(run_all(kind, chosen, options))


# A difference that is excused and no longer there.
def stale_excuses(folder, runs):
    met = set().union(*(run.known for run in runs))
    return [f"nothing fits any more: {known}" for i, known in enumerate(readback.KNOWN[folder])
            if i not in met and known[2] not in readback.MOMENTARY]


def run_all(kind, chosen, options):
    failed = []
    runs = {}

    def attempt(feature):
        for _ in range(4):
            run = runs[feature] = kind(feature, options.flavour, options.build.resolve())
            wrong, seconds = run.run()
            if not run.excused:
                break
        return wrong, seconds

    with ThreadPoolExecutor(options.jobs) as pool:
        results = {f: pool.submit(attempt, f) for f in chosen}
        for feature, result in results.items():
            wrong, seconds = result.result()
            if wrong is not None:
                failed.append(feature)
            absent = runs[feature].absent
            outcome = "FAILED" if wrong else "absent" if absent else "ok"
            print(f"{outcome:7}{feature:24}{seconds:6.1f} s" + (f"  {wrong or absent}" if wrong or absent else ""), flush=True)
    if options.flavour == "readback" and not options.feature:
        stale = stale_excuses(kind.FOLDER, runs.values())
        failed += stale
        print("\n".join(stale))
    print(f"{len(chosen) - len(failed)} of {len(chosen)} survive ({options.flavour})" + "".join(f"; FAILED: {f}" for f in failed))
    if options.exactly and not failed and all(run.absent for run in runs.values()):
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    main()
