#!/usr/bin/env python3
"""Every option of `run` does what its help says, given as an option and as its GPUCKPT_* twin: options_test.py BUILD_DIR
[NAME...]."""
import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import time

import harness
from harness import Failure, Session, reference


def both(name, value):
    """An option and its twin: (options, environment), one after the other."""
    twin = "GPUCKPT_" + name.strip("-").upper().replace("-", "_")
    return ((name, [name, value], {}), (twin, [], {twin: value}))


def same(what, got, wanted):
    if got != wanted:
        raise Failure(f"{what}: {got!r}, not {wanted!r}")


# ---- SIGTERM ----

def told(session, command, options, env):
    """Runs a program, sends SIGTERM after some lines; (exit status, snapshots)."""
    process = session.run(command, options=options, **env)
    session.wait_lines(6, process)
    os.kill(process.pid, signal.SIGTERM)
    return session.finish(process, 30), session.snapshots()


def on_term(tools):
    """A snapshot first, then exactly what SIGTERM does to the program without us."""
    program = tools.build / "tests" / "programs" / "on_term"
    for mode, status, last in (("default", -signal.SIGTERM, None), ("handler", 3, "told to end: code 0, blocked 3"),
                               ("ignored", 0, "done"), ("waiting", 3, "told to end: code -100, blocked 0")):
        command = [program, mode, 75, 20]  # long enough to be told again after a restore on a busy machine
        expected, _ = reference(tools, command)
        with Session(tools, 1) as plain:
            process = plain.popen(command, plain.work / "out")
            plain.wait_lines(6, process)
            os.kill(process.pid, signal.SIGTERM)
            same(f"{mode}, without gpuckpt", plain.finish(process, 30), status)
        name, options, env = both("--on-term", "snapshot")[mode == "ignored"]
        with Session(tools, 1) as session:
            got, snapshots = told(session, command, options, env)
            same(f"{name} {mode}: exit status", got, status)
            same(f"{name} {mode}: snapshots", [s.get("reason") for s in snapshots], ["term"])
            lines = session.lines()
            if last:
                same(f"{name} {mode}: its last line", lines[-1], last)
            elif lines != expected[:len(lines)]:
                raise Failure(f"{mode}: {lines[-2:]}")
            files = json.loads(session.cli("inspect", f"{session.store}@latest", "--fds", "--json").stdout)["fds"]
            log = next(f for f in files if f["fd"] == 1)
            if mode == "default":  # nothing lies between the snapshot and the end
                same("bytes written", (session.work / "out").stat().st_size, log["offset"])
            # The restored program is one that nobody told to end; it can be told again.
            restored = session.restore("latest")
            same(f"{mode}, restored", session.finish(restored, 30), 0)
            session.compare(expected)
            for attempt in range(3):
                restored = session.restore("latest")
                os.kill(restored.restored_pid, signal.SIGTERM)
                again = session.finish(restored, 30)
                if again != 0 or status == 0:
                    break  # else the machine was so busy that it had come to its end before it was told
            if again not in (status, 128 - status if status < 0 else status):
                raise Failure(f"{mode}, restored and told again: {again}, not {status}")
            same(f"{mode}: snapshots in the end", len(session.snapshots()), 2)


def on_term_is_off(tools):
    command = [tools.build / "tests" / "programs" / "on_term", "default", 25, 20]
    for name, options, env in (("nothing", [], {}), *both("--on-term", "ignore")):
        with Session(tools, 1) as session:
            same(f"{name}: (status, snapshots)", told(session, command, options, env), (-signal.SIGTERM, []))


def on_term_fails(tools):
    """Without a snapshot the program ends all the same."""
    for mode, status in (("default", -signal.SIGTERM), ("handler", 3)):
        command = [tools.build / "tests" / "programs" / "on_term", mode, 25, 20]
        with Session(tools, 1) as session:
            session.store.write_text("not a store")
            process = session.run(command, options=["--on-term", "snapshot"])
            session.wait_lines(6, process)
            os.kill(process.pid, signal.SIGTERM)
            same(f"{mode}: exit status", session.finish(process, 30), status)
            if "no snapshot (term)" not in session.errors("out"):
                raise Failure(f"says nothing of the snapshot that failed: {session.errors('out')}")


def stop_status(tools):
    command = [tools.build / "tests" / "programs" / "on_term", "default", 25, 20]
    with Session(tools, 1) as session:
        got, snapshots = told(session, command, ["--on-term", "snapshot"], {"GPUCKPT_STOP_STATUS": 9})
        same("(status, snapshots)", (got, len(snapshots)), (9, 1))


# ---- the others ----

def sim(tools):
    """The simulated driver and runtime are in front."""
    command = [tools.build / "tests" / "programs" / "long_synchronise", 1]
    for name, options, env in (("--sim", ["--sim"], {}), ("GPUCKPT_SIM", [], {"GPUCKPT_SIM": 1})):
        with Session(tools, 1) as session:
            process = session.popen([tools.gpuckpt, "run", *options, "--store", session.store, "--", *command],
                                    session.work / "out", **env)
            same(f"{name}: status", session.finish(process, 30), 0)


def sim_files(tools):
    """Programs that look for the files of a driver and of a compiler find the simulated ones; what the user has set stays."""
    folder = str(tools.build / "lib" / "simgpu")
    names = ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "PYTHONPATH", "GPUCKPT_SIM")
    ours = dict(zip(names, (folder, folder, f"{folder}/ptxas", f"{folder}/ptxas", None, "1")))
    torch = {**ours, "PYTHONPATH": f"{folder}/python", "GPUCKPT_SIM": "torch"}
    own = dict.fromkeys(names[1:4], "/mine") | {"LD_LIBRARY_PATH": "/a:/b", "PYTHONPATH": "/c"}
    for what, options, env, wanted in (
            ("--sim", ["--sim"], {}, ours),
            ("--sim=torch", ["--sim=torch"], {}, torch),
            ("GPUCKPT_SIM=torch", [], {"GPUCKPT_SIM": "torch"}, torch),
            ("the user's own", ["--sim=torch"], own,
             {**own, "LD_LIBRARY_PATH": f"/a:/b:{folder}", "PYTHONPATH": f"{folder}/python:/c", "GPUCKPT_SIM": "torch"}),
            ("GPUCKPT_SIM=0", [], {"GPUCKPT_SIM": 0}, {**dict.fromkeys(names), "GPUCKPT_SIM": "0"})):
        with Session(tools, 1) as session:
            process = session.popen([tools.gpuckpt, "run", *options, "--store", session.store, "--", "env"], session.work / "out", **env)
            same(f"{what}: status", session.finish(process, 30), 0)
            got = dict(line.partition("=")[::2] for line in session.lines())
            same(what, {name: got.get(name) for name in names}, wanted)
    with Session(tools, 1) as session:
        done = session.cli("run", "--sim=torhc", "--store", session.store, "--", "env", check=False)
        same("--sim=torhc: status", done.returncode, 2)


def store_and_job(tools):
    command = tools.subject("counter", 30, 20)
    for (name, options, env), (_, more, twin) in zip(both("--store", "here/s"), both("--job", "red")):
        with Session(tools, 1) as session:
            (session.work / "here").mkdir()
            process = session.popen([tools.gpuckpt, "run", "--sim", *options, *more, "--", *command],
                                    session.work / "out", **env, **twin)
            session.wait_lines(3, process)
            session.store = session.work / "here" / "s"  # relative to where it was started
            session.snapshot(process, "cli")
            same(f"{name}: job", [s.get("job") for s in session.snapshots()], ["red"])


def every_and_keep(tools):
    """Snapshots come by themselves, and only the newest are kept."""
    command = tools.subject("counter", 100, 20)
    for (name, options, env), (_, more, twin) in zip(both("--every", "250ms"), both("--keep", "2")):
        with Session(tools, 1) as session:
            process = session.run(command, options=[*options, *more], **env, **twin)
            seen, most, begin = set(), 0, time.monotonic()
            while process.poll() is None and time.monotonic() - begin < 60:
                now = [s["id"] for s in session.snapshots()]
                seen |= set(now)
                most = max(most, len(now))
                time.sleep(0.05)
            same(f"{name}: status", session.finish(process), 0)
            if len(seen) < 3 or most > 3:  # one may be there while its elder is being removed
                raise Failure(f"{name} with keep 2: {len(seen)} snapshots seen, {most} at a time")
            begin = time.monotonic()
            while len(session.snapshots()) > 2:  # the last one may still be on its way, without the program
                if time.monotonic() - begin > 10:
                    raise Failure(f"keep 2: {len(session.snapshots())} are left")
                time.sleep(0.05)


def no_keep(tools):
    command = tools.subject("counter", 60, 20)
    with Session(tools, 1) as session:
        process = session.run(command)
        session.wait_lines(3, process)
        for _ in range(3):
            session.snapshot(process, "cli")
        session.kill(process)
        same("snapshots without --keep", len(session.snapshots()), 3)


def trigger(tools):
    command = tools.subject("counter", 40, 20)
    for name, options, env in both("--signal", "USR2"):
        with Session(tools, 1) as session:
            process = session.run(command, options=options, **env)
            session.wait_lines(3, process)
            os.kill(process.pid, signal.SIGUSR2)
            session.wait_snapshot(set(), process)
            session.kill(process)
    for name, options, env in both("--signal", "none"):
        with Session(tools, 1) as session:
            process = session.run(command, options=options, **env)
            session.wait_lines(3, process)
            session.snapshot(process, "cli")  # the command line needs no signal of the program's
            os.kill(process.pid, signal.SIGUSR1)
            same(f"{name} none: SIGUSR1", session.finish(process, 30), -signal.SIGUSR1)
    with Session(tools, 1) as session:
        process = session.run(command, options=["--signal", "FRED"])
        same("--signal FRED: exit", session.finish(process, 30), 2)


def resume(tools):
    """auto: starts at the job's newest snapshot, or at the beginning when there is none."""
    command = tools.subject("counter", 40, 20)
    expected, _ = reference(tools, command)
    for (name, options, env), job in zip(both("--resume", "auto"), ("red", "blue")):
        with Session(tools, 1) as session:
            process = session.run(command, options=[*options, "--job", job], **env)
            session.wait_lines(5, process)
            session.snapshot(process, "cli")
            at = len(session.lines())
            session.kill(process)
            other = session.run(command, "other", options=[*options, "--job", "another"], **env)
            same(f"{name}: another job starts at its beginning", session.finish(other, 30), 0)
            session.compare(expected, "other")
            process = session.run(command, "second", options=[*options, "--job", job], **env)
            same(f"{name}: status", session.finish(process, 60), 0)
            session.compare(expected)
            if session.lines("second") or at >= len(expected):
                raise Failure(f"{name}: the program began again: {session.lines('second')[:3]}")
    for name, options, env in both("--resume", "never"):
        with Session(tools, 1) as session:
            process = session.run(command, options=["--job", "red"])
            session.wait_lines(5, process)
            session.snapshot(process, "cli")
            session.kill(process)
            process = session.run(command, "second", options=[*options, "--job", "red"], **env)
            same(f"{name} never: status", session.finish(process, 60), 0)
            session.compare(expected, "second")


def status_file(tools):
    command = tools.subject("counter", 40, 20)
    for name, options, env in both("--status-file", "status.json"):
        with Session(tools, 1) as session:
            process = session.run(command, options=options, **env)
            session.wait_lines(3, process)
            snapshot = session.snapshot(process, "cli")
            begin, status = time.monotonic(), {}
            while status.get("id") != snapshot and time.monotonic() - begin < 10:
                path = session.work / "status.json"
                status = json.loads(path.read_text()) if path.exists() else {}
                time.sleep(0.02)
            same(f"{name}: state", (status.get("state"), status.get("code")), ("durable", 0))
            session.kill(process)
            (session.work / "status.json").unlink()
            process = session.run(["/does/not/exist"], "none", options=options, **env)
            same(f"{name}: exit", session.finish(process, 30), 125)
            same(f"{name}: class", json.loads((session.work / "status.json").read_text())["code"], 10)


def timeout(tools):
    """A snapshot that cannot be had is given up in time."""
    command = [tools.build / "tests" / "programs" / "spinning_kernel"]
    for name, options, env in both("--timeout", "300ms"):
        with Session(tools, 1) as session:
            process = session.run(command, options=[*options, "--status-file", "status.json"], **env)
            session.wait_lines(3, process)
            os.kill(process.pid, signal.SIGUSR1)
            begin = time.monotonic()
            while not (session.work / "status.json").exists():
                if time.monotonic() - begin > 10:
                    raise Failure(f"{name} 300ms: nothing known after 10 s")
                time.sleep(0.02)
            same(f"{name}: class", json.loads((session.work / "status.json").read_text())["code"], 15)
            session.kill(process)


def level(tools):
    """0 stores plain, more stores less."""
    command = tools.subject("counter", 40, 20)
    sizes = []
    for name, options, env in (both("--level", "0")[0], both("--level", "9")[1]):
        with Session(tools, 1) as session:
            process = session.run(command, options=options, **env)
            session.wait_lines(3, process)
            session.snapshot(process, "cli")
            session.kill(process)
            sizes.append(sum(p.stat().st_size for p in session.store.rglob("*") if p.is_file()))
    if sizes[1] * 2 > sizes[0]:
        raise Failure(f"level 0 stores {sizes[0]} bytes, level 9 {sizes[1]}")


def purpose(tools):
    """What is stored for a restore is LZ4 where bytes repeat, for size never; both come back."""
    for name, options, env in both("--for", "restore") + both("--for", "size"):
        with Session(tools, 1) as session:
            process = session.run(tools.subject("counter", 40, 20), options=options, **env)
            session.wait_lines(3, process)
            session.snapshot(process, "cli")
            session.kill(process)
            info = json.loads(session.cli("inspect", session.store, "--json").stdout)
            sizes = info.get("meta", info)["sizes"]
            if ("codec_lz4_bytes" in sizes) != ("restore" in [*options, *env.values()]):
                raise Failure(f"{name} {options} {env}: {sizes}")
            session.cli("verify", session.store)
            restored = session.restore()
            session.wait_lines(len(session.lines()) + 2, restored)
            session.kill(restored)


def cached_share(path):
    """The part of a file that is in the page cache, 0 to 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with open(path, "rb") as f:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), 0)
    if libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages) != 0:
        raise Failure(f"mincore: {os.strerror(ctypes.get_errno())}")
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    return sum(page & 1 for page in pages) / len(pages)


def purpose_in_page_cache(tools):
    """A snapshot for a restore is in the page cache as a whole; of another one as large only the beginning is."""
    program = "import os, time\nkept = os.urandom(384 << 20)\nprint('ready', flush=True)\ntime.sleep(600)"
    for name, least, most in (("restore", 0.99, 1), ("balanced", 0.5, 0.8)):
        with Session(tools, 1) as session:
            process = session.run([sys.executable, "-c", program], options=["--for", name])
            session.wait_lines(1, process)
            session.snapshot(process, "cli")
            session.kill(process)
            pack = max(session.store.glob("packs/*.pack"), key=lambda p: p.stat().st_size)
            share = cached_share(pack)
            in_memory = subprocess.check_output(["stat", "-f", "-c", "%T", pack], text=True).strip() in ("tmpfs", "ramfs")
            if not least <= share <= (1 if in_memory else most):
                raise Failure(f"--for {name}: {share:.0%} of {pack.stat().st_size >> 20} MiB is in the page cache")


def misspelled(tools):
    """A setting that cannot be read is named once, with what it may be; the program runs. One that can be is not talked of."""
    wrong = {"SIGNAL": "USR3", "ON_TERM": "later", "SOCKETS": "keep", "COPY_LIMIT": "2X", "PAGE_CACHE": "much", "COPY": "twice",
             "CHILDREN": "some", "EVERY": "soon", "TIMEOUT": "5x", "GATE": "-1", "TRACK": "magic",
             "STAGE": "8X", "DRAIN_RATE": "fast", "PRECOPY": "later", "IPC": "maybe", "DEVICE_HEAP": "full", "FOR": "speed"}
    right = {"SIGNAL": "USR2", "ON_TERM": "ignore", "SOCKETS": "drop", "COPY_LIMIT": "1.5GiB", "PAGE_CACHE": "0", "COPY": "early",
             "CHILDREN": "able", "EVERY": "1h", "TIMEOUT": "90s", "GATE": "500ms", "TRACK": "content",
             "STAGE": "off", "DRAIN_RATE": "1.5G", "PRECOPY": "off", "IPC": "off", "DEVICE_HEAP": "empty", "FOR": "size"}
    for values, count in ((wrong, 1), (right, 0)):
        with Session(tools, 1) as session:
            settings = {f"GPUCKPT_{name}": value for name, value in values.items()}
            # (`run` refuses what is wrong before the program starts.)
            process = session.popen(["/bin/echo", "done"], session.work / "out", GPUCKPT_STORE=str(session.store),
                                    LD_PRELOAD=str(tools.build / "lib" / "libgpuckpt.so"), **settings)
            same("exit status", session.finish(process, 30), 0)
            same("output", session.lines(), ["done"])
            errors = (session.work / "out.err").read_text()
            for name, value in settings.items():
                same(f"{name}={value} in the warnings", errors.count(f"{name}={value} is "), count)


def budget(tools):
    command = tools.subject("counter", 40, 20)
    for name, options, env in both("--budget", "64K"):
        with Session(tools, 1) as session:
            process = session.run(command, options=options, **env)
            session.wait_lines(3, process)
            done = session.cli("checkpoint", process.pid, check=False)
            if done.returncode == 0 or "budget" not in done.stderr:
                raise Failure(f"{name} 64K: exit {done.returncode}: {done.stderr.strip()}")
            session.kill(process)


def window(tools):
    """stats and doctor say how long a snapshot will take, and warn when that is too late."""
    command = tools.subject("counter", 60, 25)
    with Session(tools, 1) as session:
        process = session.run(command)
        session.wait_lines(3, process)
        same("stats --window before any snapshot", session.cli("stats", process.pid, "--window", "30s", check=False).returncode, 3)
        session.snapshot(process, "cli")
        stats = json.loads(session.cli("stats", process.pid, "--window", "120s", "--json").stdout)
        if not 1000 < stats["time_to_durable_us"] < 120_000_000 or stats["last"]["stored_bytes"] < 4096:
            raise Failure(f"stats: {stats}")
        late = session.cli("stats", process.pid, "--window", "1ms", check=False)
        if late.returncode != 3 or "durable after about" not in late.stderr:
            raise Failure(f"stats --window 1ms: exit {late.returncode}: {late.stderr}")
        session.kill(process)
        for allowed, grade in (("1h", "ok"), ("0ms", "warn")):
            found = json.loads(session.cli("doctor", "--sim", "--store", session.store, "--window", allowed, "--json",
                                           check=False).stdout)
            line = next(f for f in found if f["name"] == "time to durable")
            if line["grade"] != grade or "the newest snapshot stored" not in line["text"]:
                raise Failure(f"doctor --window {allowed}: {line}")


CASES = [window, on_term, on_term_is_off, on_term_fails, stop_status, sim, sim_files, store_and_job, every_and_keep, no_keep, trigger, resume,
         status_file, timeout, level, purpose, purpose_in_page_cache, misspelled, budget]


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    return harness.run_timed({case.__name__: (lambda case=case: case(tools)) for case in CASES}, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
