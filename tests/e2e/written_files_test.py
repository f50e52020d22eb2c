#!/usr/bin/env python3
"""Files that a program writes, after a snapshot, a kill and a restore: what only grew goes on, what was overwritten in place is
refused by name, or is part of the snapshot: written_files_test.py BUILD_DIR [NAME...]."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import harness
from harness import Failure, Session

PYTHON = "/usr/bin/python3"

# Every program says what it did, and checks at each step that its files are what it remembers.
COMMON = """
import os, random, sys, time
step = 0
def say(*words):
    print(*words, flush=True)
def rest():
    global step
    step += 1
    say("step", step)
    time.sleep(0.01)
"""

PROGRAMS = {
    # Overwrites blocks of a file whose size stays.
    "in_place": COMMON + """
db = open(sys.argv[1] if len(sys.argv) > 1 else "db", "w+b", buffering=0)
memory = [0] * 64
db.write(bytes(4096 * 64))
while True:
    block = random.randrange(64)
    memory[block] += 1
    os.pwrite(db.fileno(), memory[block].to_bytes(8, "little") * 512, 4096 * block)
    for i in range(64):
        if os.pread(db.fileno(), 4096, 4096 * i) != memory[i].to_bytes(8, "little") * 512:
            say("WRONG block", i)
            sys.exit(1)
    rest()
""",
    # A log of its own that only grows.
    "grows": COMMON + """
log = open("log", "w")
while True:
    log.write(f"line {step}\\n")
    log.flush()
    rest()
""",
    "appends": COMMON + """
log = open("log", "a")
while True:
    log.write(f"line {step}\\n")
    log.flush()
    rest()
""",
    # A child has its standard output as well, and is a program of its own.
    "children": COMMON + """
import subprocess
subprocess.Popen([sys.executable, "-c", "import os, time\\np = os.getppid()\\nwhile os.getppid() == p: time.sleep(0.05)"])
while True:
    rest()
""",
    # A file that it does not touch after the start.
    "keeps": COMMON + """
db = open("db", "w+b", buffering=0)
db.write(b"x" * 100000)
while True:
    rest()
""",
    # A folder of files: overwritten, made, removed, renamed.
    "folder": COMMON + """
memory = {}
os.makedirs("data/deep", exist_ok=True)
def check():
    found = {}
    for folder, _, names in os.walk("data"):
        for name in names:
            with open(f"{folder}/{name}", "rb") as f:
                found[f"{folder}/{name}"] = f.read()
    if found != memory:
        say("WRONG:", sorted(set(found) ^ set(memory)), [n for n in found if memory.get(n) != found[n]])
        sys.exit(1)
def write(name, content):
    with open(name, "wb") as f:
        f.write(content)
    memory[name] = content
always = open("data/open", "w+b", buffering=0)
while True:
    name = f"data/{'deep/' if step % 2 else ''}f{random.randrange(20)}"
    what = random.randrange(4)
    if what == 0 and name in memory:
        os.remove(name)
        del memory[name]
    elif what == 1 and name in memory:
        os.rename(name, name + "x")
        memory[name + "x"] = memory.pop(name)
    else:
        write(name, os.urandom(random.randrange(20000)))
    content = os.urandom(9000)
    os.pwrite(always.fileno(), content, 0)
    memory["data/open"] = content
    check()
    rest()
""",
    # Files with several names, which come and go; what is written by one name is read by all.
    "names": COMMON + """
os.makedirs("data/deep", exist_ok=True)
files = []  # [names, content]
for i in range(30):
    with open(f"data/first{i:02d}", "wb") as f:
        f.write(b"%d" % i)
    files.append([{f"data/first{i:02d}"}, b"%d" % i])
def check():
    for names, content in files:
        seen = [os.stat(name) for name in names]
        if {s.st_ino for s in seen} != {seen[0].st_ino} or seen[0].st_nlink != len(names):
            say("WRONG names", sorted(names), [(s.st_ino, s.st_nlink) for s in seen])
            sys.exit(1)
        with open(random.choice(sorted(names)), "rb") as f:
            if f.read() != content:
                say("WRONG content", sorted(names))
                sys.exit(1)
while True:
    for _ in range(5):
        file = random.choice(files)
        names = file[0]
        what = random.randrange(3)
        new = f"data/{'deep/' if random.randrange(2) else ''}{random.choice('abxy')}{random.randrange(1000)}"
        if what == 0 and not os.path.exists(new):
            os.link(random.choice(sorted(names)), new)
            names.add(new)
        elif what == 1 and len(names) > 1:
            name = random.choice(sorted(names))
            os.remove(name)
            names.remove(name)
        else:
            file[1] = os.urandom(random.randrange(5000))
            with open(random.choice(sorted(names)), "wb") as f:
                f.write(file[1])
    check()
    rest()
""",
    # A file mapped shared, whose descriptor is closed, and a named pipe that is never empty.
    "gone": COMMON + """
import mmap
os.makedirs("data/deep", exist_ok=True)
with open("data/deep/shared", "w+b") as f:
    f.truncate(65536)
    shared = mmap.mmap(f.fileno(), 65536)
os.mkfifo("data/deep/fifo", 0o640)
fifo = os.open("data/deep/fifo", os.O_RDWR)
os.write(fifo, b"%8d" % 0)
memory = bytearray(65536)
while True:
    at = random.randrange(65536)
    shared[at] = memory[at] = (step * 7) % 256
    os.write(fifo, b"%8d" % (step + 1))
    if os.read(fifo, 8) != b"%8d" % step or shared[:] != memory or os.stat("data/deep/fifo").st_mode & 0o7777 != 0o640:
        say("WRONG", step)
        sys.exit(1)
    rest()
""",
    # Transfers between accounts, in transactions; the sum and the number of them are in memory as well.
    "sqlite": COMMON + """
import sqlite3
db = sqlite3.connect("data/accounts.db", isolation_level=None)
db.execute("pragma journal_mode=" + sys.argv[1])
db.execute("create table if not exists account (id integer primary key, money integer)")
db.execute("create table if not exists history (step integer)")
db.executemany("insert into account values (?, 1000)", [(i,) for i in range(100)])
memory = [1000] * 100
while True:
    a, b, money = random.randrange(100), random.randrange(100), random.randrange(10)
    db.execute("begin immediate")
    db.execute("update account set money = money - ? where id = ?", (money, a))
    db.execute("update account set money = money + ? where id = ?", (money, b))
    db.execute("insert into history values (?)", (step,))
    db.execute("commit")
    memory[a] -= money
    memory[b] += money
    rows = [r[0] for r in db.execute("select money from account order by id")]
    count = db.execute("select count(*) from history").fetchone()[0]
    if rows != memory or count != step + 1 or (step % 20 == 0 and db.execute("pragma integrity_check").fetchone()[0] != "ok"):
        say("WRONG", count, step + 1, rows == memory)
        sys.exit(1)
    rest()
""",
}


def expect(what, condition):
    if not condition:
        raise Failure(what)


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise Failure(f"not within {seconds} s: {what}")


class Program:
    """One of PROGRAMS in a session's folder."""

    def __init__(self, session, name, *arguments, options=(), append=False):
        self.session, self.folder = session, session.work / "job"
        self.folder.mkdir()
        (self.folder / "data").mkdir()
        script = session.work / f"{name}.py"
        script.write_text(PROGRAMS[name])
        self.out = self.folder / "out"
        self.process = self.start([session.tools.gpuckpt, "run", "--store", session.store, *options, "--", PYTHON, script,
                                   *arguments], "ab" if append else "wb")
        self.pid = self.process.pid

    def start(self, command, mode="ab"):
        out = self.out if mode != "restore" else self.session.work / "restore.out"
        with open(out, "ab" if mode == "restore" else mode) as sink, open(self.session.work / "err", "ab") as errors:
            process = subprocess.Popen([str(c) for c in command], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=errors,
                                       env=self.session.environment(), start_new_session=True)
        self.session.processes.append(process)
        return process

    def steps(self):
        lines = self.out.read_text().splitlines()
        wrong = [line for line in lines if line.startswith("WRONG")]
        expect(f"{wrong}", not wrong)
        return int(lines[-1].split()[1]) if lines and lines[-1].startswith("step ") else 0

    def wait_steps(self, more):
        until = self.steps() + more
        def there():
            expect(f"the program ended: {self.errors()}", self.process.poll() is None)
            return self.steps() >= until
        wait_for(f"step {until}", there)

    def errors(self):
        return (self.session.work / "err").read_text()

    def snapshot(self):
        """3: it is there, and a file of it is being overwritten in place."""
        done = self.session.cli("checkpoint", self.pid, check=False)
        expect(f"exit {done.returncode}: {done.stderr}", done.returncode in (0, 3))
        return done.stdout.strip()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def restore(self, *options, refused=None):
        """refused: what is to be said instead."""
        status, pid = self.session.work / "status", self.session.work / "pid"
        for file in status, pid:
            file.unlink(missing_ok=True)
        self.process = self.start([self.session.tools.gpuckpt, "restore", self.session.store, "--status-file", status, "--pid-file", pid,
                                   *options], "restore")
        if refused:
            expect(f"exit {self.process.wait(60)}, {self.errors()}", self.process.returncode == 125)
            told = json.loads(status.read_text())
            expect(f"{told}", told["code"] == 12 and all(word in told["text"] for word in refused))
            return
        wait_for("the restored program", lambda: pid.exists() or self.process.poll() is not None)
        expect(f"not restored: {self.errors()}", pid.exists())
        self.pid = self.process.restored_pid = int(pid.read_text())


def overwritten(tools):
    """The size is the same, the time tells nothing, the content is another one: refused, and --files=keep goes on (wrongly)."""
    with Session(tools) as session:
        p = Program(session, "in_place")
        p.wait_steps(10)
        p.snapshot()
        p.wait_steps(30)
        p.kill()
        p.restore(refused=[f"{p.folder}/db", "overwritten in place", "--files=keep"])
        p.restore("--files=keep")
        wait_for("the program to notice", lambda: p.process.poll() is not None or "WRONG" in p.out.read_text())


def odd_names(tools):
    """A name that is no UTF-8 is that of its file: overwritten in place it is refused, and in the snapshot it comes back."""
    with Session(tools) as session:
        p = Program(session, "in_place", "db\udcfc")
        p.wait_steps(10)
        for verb in ["stats", p.pid], ["checkpoint", p.pid]:
            told = session.cli(*verb, "--json", check=False)
            expect(f"{verb}: exit {told.returncode}: {told.stderr}", told.returncode in (0, 3) and json.loads(told.stdout))
        p.wait_steps(30)
        p.kill()
        for verb in ["list", session.store], ["inspect", f"{session.store}@latest"]:
            told = session.cli(*verb, "--json", check=False)
            expect(f"{verb}: exit {told.returncode}: {told.stderr}", told.returncode == 0 and json.loads(told.stdout))
        p.restore(refused=["overwritten in place", "--files=keep"])
    with Session(tools) as session:
        p = Program(session, "in_place", "data/db\udcfc", options=["--files-in-snapshot=data"])
        cycles(p, 2)
        p.kill()
        expect(f"{os.listdir(p.folder / 'data')}", os.listdir(p.folder / "data") == ["db\udcfc"])


def untouched(tools):
    """A later time alone is no change."""
    with Session(tools) as session:
        p = Program(session, "keeps")
        p.wait_steps(5)
        p.snapshot()
        p.kill()
        os.utime(p.folder / "db")
        p.restore()
        p.wait_steps(5)
        p.kill()
        with open(p.folder / "db", "r+b") as f:
            f.seek(50000)
            f.write(b"y")
        p.restore(refused=[f"{p.folder}/db", "overwritten in place"])


def grown(tools):
    """A program's own logs come out as in a run that was never interrupted, whatever mode they were opened in."""
    for name in "grows", "appends":
        with Session(tools) as session:
            p = Program(session, name)
            p.wait_steps(5)
            p.snapshot()
            p.wait_steps(20)
            p.kill()
            p.restore()
            p.wait_steps(30)
            p.kill()
            lines = (p.folder / "log").read_text().splitlines()
            expect(f"{name}: {lines}", lines == [f"line {i}" for i in range(len(lines))] and len(lines) > 20)


def shared_log(tools):
    """What others append to the log that the program was started with stays, also when its children have the log, too."""
    for name in "keeps", "children":
        with Session(tools) as session:
            p = Program(session, name, append=True)
            p.wait_steps(5)
            p.snapshot()
            with open(p.out, "a") as log:
                log.write("a line of the scheduler\nstep 0\n")
            p.wait_steps(5)
            p.kill()
            p.restore()
            p.wait_steps(5)
            p.kill()
            expect(f"{name}: the line is there", p.out.read_text().count("a line of the scheduler\n") == 1)
            expect(p.errors(), f"were appended to {p.out} after the snapshot stay there" in p.errors())


def cycles(p, count):
    for i in range(count):
        p.wait_steps(5 + 7 * i % 11)
        p.snapshot()
        p.wait_steps(20)
        p.kill()
        p.restore()
        p.wait_steps(3)
    p.snapshot()
    p.kill()
    p.restore()
    p.wait_steps(3)


def stored_open(tools):
    """--files-in-snapshot: a file that is overwritten in place comes back as it was."""
    with Session(tools) as session:
        p = Program(session, "in_place", options=["--files-in-snapshot"])
        cycles(p, 3)
        p.kill()
        later = list(p.folder.glob("db.gpuckpt-later-*"))
        expect(f"{later}: the later state is set aside", later and all(f.stat().st_size == 64 * 4096 for f in later))


def stored_folder(tools):
    """All below a folder comes back: what was changed, made, removed and renamed."""
    with Session(tools) as session:
        p = Program(session, "folder", options=["--files-in-snapshot=data"])
        cycles(p, 4)
        p.kill()


def stored_names(tools):
    """A file with several names is one file again, also where one of its names, or all of them, were gone or are another file now."""
    with Session(tools) as session:
        p = Program(session, "names", options=["--files-in-snapshot=data"])
        cycles(p, 3)
        p.snapshot()
        p.kill()
        shutil.rmtree(p.folder / "data")
        p.restore()
        p.wait_steps(5)
        p.snapshot()
        p.kill()
        for i, name in enumerate(sorted(p.folder.glob("data/*[0-9]"))):
            if i % 2:
                name.unlink()
            if i % 4 == 1:
                name.write_text("another file")
        p.restore()
        p.wait_steps(5)
        p.kill()


def stored_gone(tools):
    """Who outlived a killed job for a moment has removed its folder: files that were mapped shared, and named pipes, are made again."""
    with Session(tools) as session:
        p = Program(session, "gone", options=["--files-in-snapshot=data"])
        p.wait_steps(5)
        p.snapshot()
        p.wait_steps(5)
        p.kill()
        shutil.rmtree(p.folder / "data")
        p.restore()
        p.wait_steps(5)
        expect(p.errors(), "data/deep/fifo, a named pipe of the program, was not there any more; it is made again" in p.errors())
        p.kill()
        (p.folder / "data" / "deep" / "fifo").unlink()
        (p.folder / "data" / "deep" / "fifo").write_text("")
        p.restore(refused=["data/deep/fifo was a named pipe, and something else is there now"])


def stored_sqlite(tools):
    """A database under transactions."""
    for mode in "delete", "wal":
        with Session(tools) as session:
            p = Program(session, "sqlite", mode, options=["--files-in-snapshot=data"])
            cycles(p, 3)


TESTS = {"overwritten": overwritten, "odd_names": odd_names, "untouched": untouched, "grown": grown, "shared_log": shared_log, "stored_open": stored_open,
         "stored_folder": stored_folder, "stored_names": stored_names, "stored_gone": stored_gone,
         "stored_sqlite": stored_sqlite}


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1] if len(sys.argv) > 1 else None))
    for name in sys.argv[2:] or TESTS:
        TESTS[name](tools)
        print("ok", name, flush=True)


if __name__ == "__main__":
    main()
