#!/usr/bin/env python3
"""Programs that everybody knows, snapshot at random moments and restored: real_test.py PROGRAM [--count N] [--build DIR]

One run of the program is snapshotted --count times and killed. Then every snapshot is restored, the youngest first (its output file
is put back to where it was each time), until it has written some lines more; the first and the last one to the end. What the
file holds must be what an undisturbed run writes, to the last bit. Programs that overwrite files in place are stopped by each
snapshot, restored, stopped by the next, and compared in the end. Servers (servers.py, daemons.py) are asked what they know.

A program that is not on this machine is skipped (exit 77). --python names the interpreter that has PyTorch, or the packages that
programs/packages.py uses; --site a folder of packages for it.
"""
import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import daemons  # noqa: E402
import harness  # noqa: E402
import languages  # noqa: E402
import servers  # noqa: E402
from harness import Failure  # noqa: E402

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(PROGRAMS))
from packages import PACKAGES  # noqa: E402
# They overwrite their files.
IN_PLACE = {"sqlite_writer"}
SERVERS = servers.SERVERS | daemons.DAEMONS
# SIGUSR1 is theirs.
OWN_SIGNAL = {"erlang", "make"} | languages.OWN_SIGNAL


class Skipped(Exception):
    pass


def has_module(python, module, site=None):
    env = {**os.environ, "PYTHONPATH": site} if site else None
    return subprocess.run([str(python), "-c", f"import {module}"], capture_output=True, env=env).returncode == 0


def built_go(go, tools):
    folder = tools.build / "tests" / "real"
    return languages.built(PROGRAMS / "goroutines.go", folder, [go, "build", "-o"], GOCACHE=str(folder / "go"), GO111MODULE="off", CGO_ENABLED="1")


def command_of(name, tools, options, steps, pace):
    def found(program):
        path = languages.found(program)
        if not path:
            raise Skipped(f"no {program}")
        return path

    if name in ("threads_numpy", "sqlite_writer", "torch_lm"):
        python = options.python or (tools.python if name == "threads_numpy" else "/usr/bin/python3")
        module = {"threads_numpy": "numpy", "torch_lm": "torch", "sqlite_writer": "sqlite3"}[name]
        if not Path(python).exists() or not has_module(python, module):
            raise Skipped(f"{python} has no {module}")
        return [python, PROGRAMS / f"{name}.py", steps, pace] + ([options.workers] if name == "torch_lm" else [])
    if name in PACKAGES:
        python = options.python or "/usr/bin/python3"
        if not has_module(python, name, options.site):
            raise Skipped(f"{python} has no {name}")
        # No home: what packages keep there is overwritten in place, and would be an obstacle.
        settings = ["HOME=/nonexistent", "JAX_PLATFORMS=cpu", "TF_CPP_MIN_LOG_LEVEL=3"] + ([f"PYTHONPATH={options.site}"] if options.site else [])
        return [found("env"), *settings, python, PROGRAMS / "packages.py", name, steps, pace]
    if name in languages.ALL:
        command = languages.command_of(name, tools.build / "tests" / "real", steps, pace)
        if not command:
            raise Skipped(f"no compiler or interpreter for {name}")
        return command
    if name == "openmp":
        return [tools.build / "tests" / "real" / "openmp", steps, pace]
    if name == "node":
        return [found("node"), PROGRAMS / "node.js", steps, pace]
    if name == "java":
        return [found("java"), "-XX:-UsePerfData", PROGRAMS / "Threads.java", steps, pace]
    if name == "go":
        return [built_go(found("go"), tools), steps, pace]
    if name == "erlang":
        return [found("escript"), PROGRAMS / "processes.escript", steps, pace]
    if name == "make":
        return [found("make"), "-j3", "-s", "-f", PROGRAMS / "levels.mk", f"STEPS={steps}", f"PACE={pace / 1000}"]
    if name == "ffmpeg":  # the checksum of every picture, as it is made
        return [found("ffmpeg"), "-nostdin", "-loglevel", "error", "-re", "-f", "lavfi", "-i",
                f"testsrc2=duration={steps / 25}:size=160x120:rate=25", "-c:v", "mpeg4", "-threads", "2", "-flush_packets", "1",
                "-f", "framemd5", "-"]
    raise Skipped(f"{name} is no program of this test")


def more_lines(session, process, lines, expected):
    """Lets a restored program write so many lines more, or end; then ends it."""
    goal = min(len(session.lines()) + lines, len(expected))
    begin = time.monotonic()
    while len(session.lines()) < goal and process.poll() is None:
        if time.monotonic() - begin > 120:
            raise Failure(f"restored, and {len(session.lines())} of {goal} lines after 120 s: {session.errors('restore')}")
        time.sleep(0.02)
    if process.poll() is None:
        servers.kill_all(process, process.restored_pid)
    elif process.returncode not in (0, -9):
        raise Failure(f"restored, it ended with {process.returncode}: {session.errors('restore')} {session.errors('out')}")
    # The last line may be half written.
    text = (session.work / "out").read_text(errors="replace")
    whole = text.splitlines() if text.endswith("\n") else text.splitlines()[:-1]
    if whole != expected[:len(whole)]:
        for i, (a, b) in enumerate(zip(expected, whole)):
            if a != b:
                raise Failure(f"line {i + 1} is {b!r}, not {a!r}")
        raise Failure(f"{len(whole)} lines, not {len(expected)}")


def many(tools, command, options):
    """So many snapshots of one run, each restored."""
    expected, status = harness.reference(tools, command, options.user, timeout=300)
    with harness.Session(tools, options.seed, options.user) as session:
        own = options.program in OWN_SIGNAL
        process = session.run(command, options=["--signal", "none"] if own else [])
        session.wait_lines(1, process, timeout=200)
        taken = []
        while len(taken) < options.count and len(session.lines()) < len(expected) - 2:
            time.sleep(session.random.random() * options.gap)
            if process.poll() is not None:
                break
            try:
                taken.append(session.snapshot(process, "cli" if own else session.random.choice(["signal", "cli"]), timeout=60))
            except (Failure, ProcessLookupError):
                if process.poll() is None:
                    raise
                break  # it ended by itself
        if not taken:
            raise Failure("it ended before a snapshot was taken")
        if process.poll() is None:
            servers.kill_all(process, process.pid)
        elif process.returncode != status:
            raise Failure(f"ended with {process.returncode}: {session.errors('out')}")
        wrong = 0
        for i, snapshot in enumerate(reversed(taken)):
            try:
                restored = session.restore(snapshot)
                if i in (0, len(taken) - 1):
                    ended = session.finish(restored, 200)
                    if ended != status:
                        raise Failure(f"restored, it ended with {ended}: {session.errors('restore')}")
                    session.compare(expected)
                else:
                    more_lines(session, restored, options.lines, expected)
            except Failure as failure:
                wrong += 1
                print(f"FAILED snapshot {len(taken) - i} of {len(taken)} ({snapshot}): {failure}", flush=True)
        print(f"{len(taken) - wrong} of {len(taken)} identical")
        if wrong:
            raise Failure(f"{wrong} of {len(taken)} differ")


def chain(tools, command, options):
    """Stopped by each snapshot, restored, stopped by the next."""
    expected, status = harness.reference(tools, command, options.user, timeout=300)
    with harness.Session(tools, options.seed, options.user) as session:
        process = session.run(command)
        pid, taken = process.pid, 0
        session.wait_lines(1, process, timeout=200)
        while taken < options.count:
            time.sleep(session.random.random() * options.gap)
            done = session.cli("checkpoint", pid, "--stop", check=False, timeout=120)
            if not harness.is_taken(done):
                if process.poll() is not None or len(session.lines()) >= len(expected):
                    break
                raise Failure(f"checkpoint --stop: exit {done.returncode}: {done.stderr.strip()}")
            session.finish(process)
            taken += 1
            process = session.restore()
            pid = process.restored_pid
        if not taken:
            raise Failure("it ended before a snapshot was taken")
        ended = session.finish(process, 200)
        if ended != status:
            raise Failure(f"after {taken} restores it ended with {ended}: {session.errors('restore')}")
        session.compare(expected)
        print(f"{taken} of {taken} identical")


# --- redis: a server, and clients that come and go


class Redis:
    def __init__(self, port):
        self.port = port

    def call(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), 10) as s:
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(str(w)), str(w).encode()) for w in words))
            answer = s.makefile("rb")
            line = answer.readline().strip()
            if line.startswith(b"$") and line != b"$-1":
                line = answer.read(int(line[1:]) + 2)[:-2]
            return line.decode()

    def wait(self, process):
        for _ in range(600):
            try:
                if "LOADING" not in self.call("PING"):
                    return
            except OSError:
                pass
            if process.poll() is not None:
                raise Failure(f"redis-server ended with {process.returncode}")
            time.sleep(0.02)
        raise Failure("redis-server does not answer")


def redis(tools, options):
    server = shutil.which("redis-server", path="/usr/bin:/usr/local/bin")
    if not server:
        raise Skipped("no redis-server")
    choice = random.Random(options.seed)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with harness.Session(tools, options.seed, options.user) as session:
        command = [server, "--port", port, "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
                   "--dir", session.work, "--daemonize", "no", "--hz", "50"]
        process = session.run(command)
        pid, client, model, right = process.pid, Redis(port), {}, 0
        client.wait(process)

        def write(count, model):
            for _ in range(count):
                key = f"k{choice.randrange(200)}"
                if choice.random() < 0.2:
                    client.call("DEL", key), model.pop(key, None)
                else:
                    client.call("APPEND", key, choice.random()), model.__setitem__(key, None)
                    model[key] = client.call("GET", key)

        for _ in range(options.count):
            write(30, model)
            snapshot = session.snapshot(process, choice.choice(["signal", "cli"]), pid)
            before = dict(model)
            if choice.random() < 0.7:  # lost with the kill, also from the append-only file
                write(20, dict(model))
            session.kill(process, pid)
            process = session.restore(snapshot)
            pid = process.restored_pid
            client.wait(process)
            model = before
            have = {k: client.call("GET", k) for k in model}
            if have != model or int(client.call("DBSIZE")[1:]) != len(model):
                raise Failure(f"round {right + 1}: {client.call('DBSIZE')} keys, not {len(model)}, or other values")
            right += 1
        # What a server of its own reads from the append-only file is the same.
        write(10, model)
        time.sleep(1.2)
        session.kill(process, pid)
        process = session.popen(command, session.work / "second")
        client.wait(process)
        if {k: client.call("GET", k) for k in model} != model:
            raise Failure("the append-only file holds other values")
        session.kill(process)
        print(f"{right} of {right} identical, and the append-only file")


def pgbench(tools, options):
    with harness.Session(tools, options.seed, harness.NOBODY) as session:  # PostgreSQL refuses to run as root
        print(f"{servers.serve_pgbench(session, servers.PgBench(session), options.count)} of {options.count} right")


def serve(tools, options):
    kind = SERVERS[options.program]
    user = options.user
    if kind.needs_user is False and user is not None:
        raise Skipped(f"{options.program} is for root")
    if kind.needs_user and user is None:
        user = harness.NOBODY
    with harness.Session(tools, options.seed, user) as session:
        print(f"{servers.serve(session, kind(session), options.count)} of {options.count} right")


PAGE = """<body><script>let value = 1, step = 0; function go() {
for (let i = 0; i < 200000; ++i) value = (value * 31 + i) % 1000003;
if (++step < STEPS) return setTimeout(go, PACE);
document.body.innerText = `value ${value} after ${step} steps`; }
go();</script></body>"""


def chromium(tools, options):
    """A page that computes while its processes are killed and restored; what it shows in the end."""
    program = shutil.which("chromium", path="/usr/bin") or shutil.which("google-chrome", path="/usr/bin")
    if not program:
        raise Skipped("no chromium")
    right = 0
    for number in range(options.count):
        with harness.Session(tools, options.seed + number, options.user) as session:
            (session.work / "page.html").write_text(PAGE.replace("STEPS", str(options.steps)).replace("PACE", str(options.pace)))
            command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                       f"--user-data-dir={session.work}/profile", "--timeout=60000", "--virtual-time-budget=100000", "--dump-dom",
                       session.work / "page.html"]
            plain = session.plain(command, session.work / "expected")
            expected = session.lines("expected")
            if plain != 0 or not any("after" in line for line in expected):
                raise Failure(f"it does not run here: exit {plain}: {session.errors('expected')}")
            (session.work / "profile").mkdir(exist_ok=True)  # it overwrites what lies there
            process = session.run(command, options=[f"--files-in-snapshot={session.work}/profile"])
            while len(servers.descendants(process.pid)) < 8 and process.poll() is None:
                time.sleep(0.02)
            time.sleep(session.random.random() * options.gap)
            snapshot = session.snapshot(process, "cli")
            servers.kill_all(process, process.pid)
            (session.work / "out").write_text("")
            if session.finish(session.restore(snapshot)) != 0:
                raise Failure(f"restored: {session.errors('restore')}")
            session.compare(expected)
            right += 1
    print(f"{right} of {options.count} identical")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--build")
    parser.add_argument("--python")
    parser.add_argument("--site", help="a folder of Python packages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pace", type=int, default=30, help="milliseconds between steps")
    parser.add_argument("--gap", type=float, default=0.4, help="longest pause between snapshots, seconds")
    parser.add_argument("--lines", type=int, default=5, help="of a restored run that does not go to its end")
    parser.add_argument("--workers", type=int, default=2, help="processes of torch_lm's DataLoader")
    parser.add_argument("--nobody", action="store_true")
    options = parser.parse_args()
    options.user = harness.NOBODY if options.nobody else None
    tools = harness.Tools(harness.find_build(options.build), sim=False)
    try:
        if options.program == "redis":
            redis(tools, options)
        elif options.program == "pgbench":
            pgbench(tools, options)
        elif options.program in SERVERS:
            serve(tools, options)
        elif options.program == "chromium":
            chromium(tools, options)
        else:
            command = command_of(options.program, tools, options, options.steps, options.pace)
            (chain if options.program in IN_PLACE else many)(tools, command, options)
    except (Skipped, servers.Absent) as why:
        print(f"skipped: {why}")
        return 77
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
