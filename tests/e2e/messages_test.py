#!/usr/bin/env python3
"""What gpuckpt says: a mistake is answered by what happened, to whom and what to do; what a stranger wrote is shown, not obeyed.

messages_test.py BUILD_DIR [NAME...].
"""
import ctypes
import ctypes.util
import json
import os
import re
import struct
import subprocess
import sys
import time

import harness
from harness import NOBODY, Failure, Session

xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash.XXH3_64bits.restype = ctypes.c_uint64
xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
xxhash.XXH3_128bits.restype = Hash128
xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

FAILED, USAGE, ABSENT, CORRUPT, REFUSED, LAUNCHER = 1, 2, 10, 13, 14, 125


def check(condition, text):
    if not condition:
        raise Failure(text)


def counter(session, steps=2000):
    return [session.tools.build / "tests" / "programs" / "counter", steps, 15]


def snapshot(session, *options):
    process = session.run(counter(session), options=options)
    session.wait_lines(3, process)
    return process, session.snapshot(process, "cli")


# ---- wrong use

def say(session, row, arguments, code, words, never=(), user=None, **env):
    """One row of the table: these words are said on stderr, the others are not, and the code is that."""
    options = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
    done = subprocess.run([str(session.tools.gpuckpt), *map(str, arguments)], cwd=session.work,
                          env=session.environment(**env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, **options)
    said = f"{row}: exit {done.returncode}: {done.stderr.strip()[-600:]}"
    check(done.returncode == code, f"not {code}: {said}")
    for word in words:
        check(word in done.stderr, f"does not say {word!r}: {said}")
    for word in (*never, "std::", "0.000000", "what():"):
        check(word not in done.stderr, f"says {word!r}: {said}")


def wrong_use(session):
    """Every mistake in the use of the command line that was seen to be answered badly."""
    process, _ = snapshot(session)
    store, work = session.store, session.work
    link = work / "link"
    link.symlink_to(store)
    open_folder = work / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    true = "/bin/true"
    say(session, "no verb", [], USAGE, ["gpuckpt run --store DIR -- ", "checkpoint PID", "--help"])
    say(session, "unknown verb", ["frob"], USAGE, ['no verb "frob"', "--help"])
    say(session, "unknown option", ["list", "--frob"], USAGE, ["--frob", "gpuckpt list --help"])
    say(session, "empty store", ["run", "--store", "", "--", true], USAGE, ["--store", "is empty", "name a directory"])
    say(session, "option of run that is none", ["run", "--frob", "--", true], USAGE, ["no option --frob", "-- PROGRAM"],
        never=["no program"])
    say(session, "choice", ["run", "--children", "some", "--", true], USAGE, ['--children: "some" is not all, able or ignore'])
    say(session, "threads", ["restore", store, "--threads", "many"], USAGE, ['"many" is not a number from 0'], never=["convert"])
    say(session, "long tag", ["checkpoint", process.pid, "--tag", "t" * 400], USAGE, ["tag has 400 bytes", "at most"])
    say(session, "no such stream", ["import", store, "-i", work / "nothing"], ABSENT, ["cannot open", "No such file"],
        never=["store directory moved"])
    say(session, "no such key", ["run", "--", true], 0, ["warning", "key file", "/nonexistent/key"], GPUCKPT_KEY_FILE="/nonexistent/key")
    say(session, "no folder for the status file", ["run", "--status-file", "/nonexistent/status", "--", true], 0,
        ["warning: the status file", "/nonexistent"])
    say(session, "keep 0", ["run", "--keep", 0, "--", true], USAGE, ["--keep", '"0" is not a number of 1 or more'])
    say(session, "keep abc", ["prune", store, "--keep", "abc"], USAGE, ['"abc" is not a number of 1 or more'])
    say(session, "keep by variable", ["run", "--", true], USAGE, ['"abc" is not a number', "from GPUCKPT_KEEP"],
        GPUCKPT_KEEP="abc")
    say(session, "level", ["run", "--level", 99, "--", true], USAGE, ['"99" is not a number from 0 to 19'])
    say(session, "size", ["run", "--budget", "much", "--", true], USAGE, ['"much" is not a size such as'])
    say(session, "duration", ["run", "--every", "soon", "--", true], USAGE, ['"soon" is not a duration such as'])
    say(session, "export into nothing", ["export", store, "-o", "/nonexist/x"], 1,
        ["cannot write the stream to /nonexist/x", "no such folder"], ["store"])
    for name in (store, f"{store}/", link, "store", "./store/../store"):
        say(session, f"mirror to itself ({name})", ["mirror", store, name], REFUSED, ["is the store itself"])
    say(session, "mirror inside", ["mirror", store, f"{link}/packs"], REFUSED, ["is inside of the store"])
    listed = session.cli("list", store)
    check("mirror" not in listed.stdout + listed.stderr, f"a mirror that was refused is listed: {listed.stderr}")
    say(session, "run with itself as mirror", ["run", "--store", store, "--mirror", link, "--", true], LAUNCHER,
        ["is the store itself"])
    say(session, "store that all may write", ["list", open_folder], REFUSED, ["can be written by other users"],
        [f"chmod 700 {open_folder}"])
    say(session, "list of nothing", ["list", work / "none"], ABSENT, [f"no store at {work}/none"])
    say(session, "checkpoint of nobody", ["checkpoint", 999999999], ABSENT, ["there is no process 999999999"])
    say(session, "checkpoint of a stranger's program", ["checkpoint", os.getpid()], ABSENT,
        [str(os.getpid()), "does not run under gpuckpt", "gpuckpt run -- "])
    if os.getuid() == 0:
        for pid in (1, process.pid):
            say(session, f"checkpoint of root's {pid}", ["checkpoint", pid], REFUSED,
                [f"process {pid} (", "belongs to user root (0)", "ask as that user, or as root"], ["protects"], user=NOBODY)
    session.kill(process)


def started_with(session, seconds=30, shell=None, **env):
    """A program under the library that says what it thinks of these settings, and the answer to `checkpoint`."""
    process = session.run(["/bin/sh", "-c", f"{shell or ':'}; exec sleep 60"], **env)
    begin = time.monotonic()
    # (`sleep` has no handlers of its own: one is the library's, which is mapped some time after the exec.)
    def listens():
        status = dict(line.split(":\t", 1) for line in open(f"/proc/{process.pid}/status") if ":\t" in line)
        return status["Name"] == "sleep\n" and int(status["SigCgt"], 16) != 0

    while not listens():
        check(time.monotonic() - begin < seconds, "the program did not start")
        time.sleep(0.01)
    done = session.cli("checkpoint", process.pid, check=False)
    session.kill(process)
    return done, session.errors("out")


def wrong_settings(session):
    """GPUCKPT_* variables that mean nothing, set beside LD_PRELOAD: said at the start, by name, and the snapshot is taken."""
    preload = str(session.tools.build / "lib" / "libgpuckpt.so")
    for name, value, word in (("GPUCKPT_KEEP", "abc", "not a number of 1 or more"),
                              ("GPUCKPT_KEEP", "0", "not a number of 1 or more"),
                              ("GPUCKPT_LEVEL", "ten", "not a number from 0 to 19"),
                              ("GPUCKPT_BUDGET", "lots", "not a size"),
                              ("GPUCKPT_STOP_STATUS", "-1", "not a number from 0 to 255")):
        out = session.work / f"out-{name}-{value}"
        process = session.popen(["/bin/sleep", "60"], out, LD_PRELOAD=preload, GPUCKPT_STORE=session.store, **{name: value})
        begin = time.monotonic()
        while word not in session.errors(out.name):
            check(time.monotonic() - begin < 20, f"{name}={value} is not spoken of: {session.errors(out.name)}")
            time.sleep(0.01)
        check(f"{name}={value} " in session.errors(out.name), session.errors(out.name))
        done = session.cli("checkpoint", process.pid, check=False)
        check(done.returncode == 0, f"{name}={value}: {done.stderr}")
        session.kill(process)
    done = subprocess.run(["/bin/sh", "-c", "/bin/true; exec /bin/sh -c /bin/true"], capture_output=True, text=True, timeout=60,
                          cwd=session.work, env=session.environment(LD_PRELOAD=preload, GPUCKPT_STORE=session.store, GPUCKPT_KEEP="abc"))
    check(done.stderr.count("not a number of 1 or more") == 1, f"not told once by a shell and its children: {done.stderr}")


def failures_of_the_writer(session):
    """A snapshot that fails says why, and not that it failed."""
    done, _ = started_with(session, GPUCKPT_BUDGET_ACTION="explode")
    check(done.returncode != 0 and "GPUCKPT_BUDGET_ACTION=explode is neither" in done.stderr, f"{done.stderr}")
    done, _ = started_with(session, GPUCKPT_WRITER="/bin/false")
    check(done.returncode == 1 and "the writer ended" in done.stderr, done.stderr)
    check("status 1" in done.stderr or "run by hand" in done.stderr, done.stderr)
    done, _ = started_with(session, GPUCKPT_WRITER="/nonexist/writer")
    check(done.returncode == 1 and "/nonexist/writer cannot be executed; set GPUCKPT_WRITER" in done.stderr, done.stderr)
    # (Root's processes may go beyond the limit.)
    session.user = NOBODY if os.getuid() == 0 else None
    os.chown(session.work, session.user or os.getuid(), -1)
    for name in session.work.rglob("*"):
        os.chown(name, session.user or os.getuid(), -1, follow_symlinks=False)
    done, _ = started_with(session, shell="ulimit -f 16")
    check(done.returncode == 1 and "RLIMIT_FSIZE" in done.stderr and "ulimit -f" in done.stderr, done.stderr)


# ---- what strangers wrote

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e"
STRANGER = r"""
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(15, b"\x1b]0;t\x07\x9b2J")
os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
written = open(os.path.join(sys.argv[1], sys.argv[2]), "w")
written.write("something"), written.flush()
for i in range(10000):
    print(i, flush=True)
    time.sleep(0.02)
"""


def commands(text):
    """Characters that a terminal obeys; lines and tabs are ours."""
    return set(re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", text))


def quiet(session, *arguments, code=None):
    done = session.cli(*arguments, check=False)
    for what, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        check(not commands(text), f"{arguments[:3]}: {what} has {commands(text)}: {text!r:.600}")
    check(code is None or done.returncode == code, f"{arguments[:3]}: exit {done.returncode}: {done.stderr}")
    return done


def terminal_escapes(session):
    """Names, paths, command lines, tags and jobs with terminal escapes in them: shown everywhere, obeyed nowhere."""
    folder, file = session.work / f"folder{ESCAPES}", f"file{ESCAPES}"
    script = session.work / "stranger.py"
    script.write_text(STRANGER)
    process = session.run([sys.executable, script, folder, file, f"argument{ESCAPES}"],
                          options=["--job", f"job{ESCAPES}", "--self-contained"])
    session.wait_lines(3, process)
    done = session.cli("checkpoint", process.pid, "--tag", f"tag{ESCAPES}", check=False)
    check(done.returncode == 0 and not commands(done.stdout + done.stderr), f"{done.stderr!r}")
    for verb in ("stats", "doctor"):
        quiet(session, verb, *([process.pid] if verb == "stats" else []))
    session.kill(process)
    store = session.store
    for arguments in (["list", store], ["list", store, "--tree"], ["list", store, "--json"], ["inspect", store],
                      ["inspect", store, "--json"], ["inspect", store, "--threads"], ["inspect", store, "--fds"],
                      ["inspect", store, "--maps"], ["inspect", store, "--threads", "--fds", "--maps", "--json"],
                      ["verify", store], ["restore", store, "--dry-run"]):
        quiet(session, *arguments, code=0)
    shown = quiet(session, "inspect", store, "--threads").stdout
    check('"?]0;t??2J"' in shown, f"the thread's name is not shown: {shown}")
    check("file?]0;title" in quiet(session, "inspect", store, "--fds").stdout, "the file's name is not shown")
    whole = json.loads(session.cli("list", store, "--json").stdout)
    check(whole[0]["tag"] == f"tag{ESCAPES}", f"JSON is not exact: {whole[0]['tag']!r}")
    # A warning of a restore, and its errors.
    os.unlink(folder / file)
    for options in ([], ["--dry-run"]):
        done = quiet(session, "restore", store, *options)
        check(done.returncode != 0 and "file?]0;title" in done.stderr, f"{options}: {done.stderr}")
    quiet(session, "restore", f"{store}@nothing{ESCAPES}", code=LAUNCHER)
    quiet(session, "inspect", f"{store}@nothing{ESCAPES}", code=ABSENT)
    quiet(session, "list", f"{session.work}/nothing{ESCAPES}", code=ABSENT)
    quiet(session, f"verb{ESCAPES}", code=USAGE)
    quiet(session, "list", f"--option{ESCAPES}", code=USAGE)


def forge(path, change):
    """Rewrites the description in a manifest, with all sums right, as a stranger who made the store may."""
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data, 16)
    meta = change(json.loads(data[64:64 + length]))
    meta = meta if isinstance(meta, bytes) else json.dumps(meta).encode()
    head = bytearray(data[:64])
    struct.pack_into("<Q", head, 16, len(meta))
    struct.pack_into("<Q", head, 40, xxhash.XXH3_64bits(meta, len(meta)))
    struct.pack_into("<Q", head, 56, xxhash.XXH3_64bits(bytes(head[:56]), 56))
    data = bytes(head) + meta + data[64 + length:-24]
    total = xxhash.XXH3_128bits(data, len(data))
    path.write_bytes(data + struct.pack(">QQ", total.high, total.low) + b"GPCKSEND")


def nested(depth, inside="1"):
    return "[" * depth + inside + "]" * depth


READERS = [["list"], ["list", "--json"], ["list", "--tree"], ["inspect"], ["inspect", "--json"], ["inspect", "--threads"],
           ["inspect", "--fds", "--json"], ["report"], ["verify"], ["prune", "--keep", 1, "--dry-run"], ["diff"],
           ["restore", "--dry-run"]]


def read_all(session, what, readers=READERS):
    for verb, *options in readers:
        whom = [session.store] * (2 if verb == "diff" else 1)
        try:
            done = session.cli(verb, *whom, *options, check=False, timeout=30)
        except subprocess.TimeoutExpired:
            raise Failure(f"{what}: {verb} {options} does not end") from None
        check(0 <= done.returncode < 128, f"{what}: {verb} {options} died: {done.returncode}: {done.stderr[-500:]}")
        check(not commands(done.stderr), f"{what}: {verb} {options}: {done.stderr!r:.300}")


def descriptions_made_to_kill(session):
    """JSON in a snapshot's description that is nested without end, or of the wrong types: damage, or nothing at all."""
    process, taken = snapshot(session)
    session.kill(process)
    path = session.store / "snapshots" / f"{taken}.manifest"
    whole = path.read_bytes()
    values = ['"x"', "-1", "1e300", "null", "true", "[]", "{}", '{"a":[]}', "18446744073709551616", nested(40),
              nested(200_000), '[{"number":"x"}]', '[{"number":-1}]', '[[],7,null,{"number":{}}]',
              '[{"number":1,"pid":{},"command":[[],{}]}]', '"\\u001b[2J"']
    keys = ("members", "sizes", "stats", "job", "tag", "command", "pid", "run", "parent", "time", "time_ns", "fence", "base",
            "branch", "files", "generation", "host")
    for value in values:
        # All of them, and each that is more than a text alone: one fault may hide another.
        for forged in (keys, keys[:1], keys[1:3]):
            forge(path, lambda meta: json.dumps({**meta, **dict.fromkeys(forged, "VALUE")}).replace('"VALUE"', value).encode())
            read_all(session, f"{forged[0]}... = {value[:40]}", READERS if forged == keys else READERS[3:8])
            path.write_bytes(whole)
    for text in (b"", b"[]", b"7", nested(1_000_000).encode(), b'{"a":' * 1_000_000, b"\xff\xfe"):
        forge(path, lambda meta: text)
        read_all(session, f"description {text[:20]}")
        path.write_bytes(whole)
    read_all(session, "as it was")


def small_files_made_to_kill(session):
    """The same in the store's other JSON: locks, leases, the mirror's state, the format."""
    process, taken = snapshot(session, "--job", "demo")
    session.kill(process)
    time.sleep(0.2)
    deep = nested(25_000)
    bombs = [deep, '{"a":' * 10_000, '{"kind":7,"pid":"x","host":[],"boot":{},"run":3,"what":null}', "[]", "\x00\xff"]
    leases = list((session.store / "jobs").glob("*.lease"))
    check(leases, "no lease")
    for bomb in bombs:
        for path in [session.store / "locks" / "0000000000000000.lock", session.store / "mirror", *leases,
                     session.store / "format"]:
            before = path.read_bytes() if path.exists() else None
            path.write_text(bomb)
            os.utime(path, (1, 1))
            read_all(session, f"{path.name} = {bomb[:30]!r}", [["list"], ["inspect"], ["verify"], ["prune", "--dry-run"]])
            again = session.cli("run", "--store", session.store, "--job", "demo", "--resume", "auto", "--resume-wait", "0s", "--", "/bin/true",
                                check=False, timeout=60) if path in leases else None
            check(again is None or 0 <= again.returncode < 128, f"run: {again and again.stderr}")
            if before is None:
                path.unlink(missing_ok=True)
            elif path.exists():
                path.write_bytes(before)
    check(session.cli("verify", session.store).returncode == 0, "the store is not whole any more")


# ---- what ends while it is asked

def end_in_the_question(session):
    """A process that ends while it is asked, and is waited for at once, is said to have ended: nothing else about it is known.

    Which sentence says so depends on the moment at which it ended."""
    ends = {ABSENT: harness.HAS_ENDED, FAILED: ["before the snapshot was durable"]}
    preload = session.environment(GPUCKPT_STORE=session.store, LD_PRELOAD=session.tools.build / "lib" / "libgpuckpt.so")
    answers = {}
    for _ in range(60):
        process = subprocess.Popen(["/bin/sleep", "0.15"], env={name: str(value) for name, value in preload.items()})
        time.sleep(0.13 + session.random.random() * 0.02)
        asked = subprocess.Popen([session.tools.gpuckpt, "checkpoint", str(process.pid)], env=session.environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        check(process.wait() == 0, "the program was disturbed")
        said = asked.communicate(timeout=60)[1]
        if asked.returncode in ends:
            check(any(end in said for end in ends[asked.returncode]), said)
        else:
            check(asked.returncode == 0, f"exit {asked.returncode}: {said}")
        answers[asked.returncode] = answers.get(asked.returncode, 0) + 1
    print(f"{answers.get(0, 0)} taken, {answers.get(ABSENT, 0)} had ended, {answers.get(FAILED, 0)} ended in the snapshot")


CASES = [wrong_use, wrong_settings, failures_of_the_writer, terminal_escapes, descriptions_made_to_kill,
         small_files_made_to_kill, end_in_the_question]


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    harness.ordinary_user.require(tools.build)
    return harness.run_in_sessions(CASES, lambda: Session(tools), sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
