#!/usr/bin/env python3
"""What other users of the machine may prepare against a user of gpuckpt: files made beforehand, links, folders, stores.

attacks_test.py BUILD_DIR [NAME...]. Needs root, who plays both sides.
"""
import json
import os
import shutil
import sys
import time
from pathlib import Path

import harness
from harness import NOBODY, Failure, Session

VICTIM = 54321  # nobody else's number


def check(condition, text):
    if not condition:
        raise Failure(text)


def counter(session, steps=2000):
    return [session.tools.build / "tests" / "programs" / "counter", steps, 15]


def snapshot(session):
    process = session.run(counter(session))
    session.wait_lines(3, process)
    taken = session.snapshot(process, "cli")
    return process, taken


def tail_made_beforehand(session):
    """Another user holds LOG.gpuckpt-tail open before the restore writes the end of a private log there."""
    log, tail = session.work / "out", session.work / "out.gpuckpt-tail"
    process, taken = snapshot(session)
    log.chmod(0o600)
    session.wait_lines(len(session.lines()) + 3, process)
    session.kill(process)
    tail.touch()
    os.chown(tail, NOBODY, NOBODY)
    tail.chmod(0o666)
    with open(tail, "rb") as spy:
        session.kill(session.restore(taken))
        check(tail.stat().st_size > 0, "nothing was set aside")
        check(tail.stat().st_uid == 0 and tail.stat().st_mode & 0o777 == 0o600, f"the tail is {tail.stat()}")
        check(not spy.read(), "another user reads the end of a private log")


def links_at_status_files(session):
    """A link at the name of a status or pid file, or at that name with .tmp, leads nowhere."""
    victim = session.work / "precious"
    names = [session.work / f"{stem}{end}" for stem in ("status", "restored", "pid") for end in ("", ".tmp")]
    def prepare():
        victim.write_text("precious")
        for name in names:
            name.unlink(missing_ok=True)
            name.symlink_to(victim)
    prepare()
    process = session.run(counter(session), options=["--status-file", session.work / "status"])
    session.wait_lines(3, process)
    taken = session.snapshot(process, "cli")
    session.kill(process)
    check(json.loads((session.work / "status").read_text())["id"] == taken, "the status file is not there")
    check(victim.read_text() == "precious", "the program's status file went through a link")
    prepare()
    restored = session.restore(taken, ["--status-file", session.work / "restored"])
    session.kill(restored, restored.restored_pid)
    check(json.loads((session.work / "restored").read_text())["state"] in ("running", "ended"), "no status")
    prepare()
    session.cli("restore", f"{session.store}@nothing", "--status-file", session.work / "restored", check=False)
    check(json.loads((session.work / "restored").read_text())["code"] == 10, "no status of a failure")
    check(victim.read_text() == "precious", "a status file went through a link")
    # A device stays a device, and a file its mode.
    session.cli("restore", f"{session.store}@nothing", "--status-file", "/dev/null", check=False)
    check(Path("/dev/null").is_char_device(), "/dev/null was replaced")
    kept = session.work / "kept"
    kept.touch(mode=0o600)
    session.cli("restore", f"{session.store}@nothing", "--status-file", kept, check=False)
    check(kept.stat().st_mode & 0o777 == 0o600 and kept.stat().st_size, "the mode of a status file changed")


def export_into_a_file_that_is_read(session):
    process, taken = snapshot(session)
    session.kill(process)
    to = session.work / "stream"
    to.touch()
    os.chown(to, NOBODY, NOBODY)
    to.chmod(0o666)
    with open(to, "rb") as spy:
        session.cli("export", f"{session.store}@{taken}", "-o", to)
        check(not spy.read(1), "another user reads a snapshot")
    check(to.stat().st_uid == 0 and to.stat().st_mode & 0o777 == 0o600, f"the stream is {to.stat()}")


def run_as_victim(session, **env):
    """A program of a user with no session folder of its own yet."""
    os.chown(session.work, VICTIM, VICTIM)
    session.user = VICTIM
    plain = session.environment
    session.environment = lambda **extra: {k: v for k, v in {**plain(**extra), **env}.items() if k != "GPUCKPT_SESSION_DIR"}
    process = session.run(counter(session))
    session.wait_lines(3, process)
    return process


def squatted_session_folder(session):
    """/tmp/gpuckpt-UID of somebody else: said whose it is. XDG_RUNTIME_DIR is the way round, but only the user's own."""
    usual = Path(f"/tmp/gpuckpt-{VICTIM}")
    runtime = session.work / "runtime"
    shutil.rmtree(usual, ignore_errors=True)
    usual.mkdir(mode=0o777)
    os.chown(usual, NOBODY, NOBODY)
    runtime.mkdir(mode=0o700)
    try:
        process = run_as_victim(session, XDG_RUNTIME_DIR=str(runtime))  # root's: as su and sudo leave it
        began = time.monotonic()
        done = session.cli("checkpoint", process.pid, check=False)
        check(done.returncode == 14 and f"{usual} belongs to user {NOBODY}" in done.stderr, done.stderr)
        check(time.monotonic() - began < 10, "the command waited for an answer that cannot come")
        started = session.cli("run", "--store", session.store, "--", "/bin/true", check=False)
        check(started.returncode == 0 and f"{usual} belongs to user {NOBODY}" in started.stderr, started.stderr)
        check(f"{usual} belongs to user {NOBODY}" in session.errors("out"), session.errors("out"))
        check(not list(runtime.iterdir()), "another user's runtime folder was used")
        os.chown(runtime, VICTIM, VICTIM)
        check(session.snapshot(process, "cli"), "no snapshot by way of XDG_RUNTIME_DIR")
        check([p.name for p in runtime.iterdir()] == ["gpuckpt"], "XDG_RUNTIME_DIR was not used")
        session.user = None  # root reaches it as well, with a runtime folder of its own
        check(session.cli("stats", process.pid).stdout, "root does not reach the process")
        session.kill(process)
    finally:
        shutil.rmtree(usual, ignore_errors=True)


def store_of_a_stranger(session):
    """Root restores a store that belongs to another user, whose snapshot says that it runs as root: it does not."""
    process, taken = snapshot(session)
    session.kill(process)
    for folder, _, files in os.walk(session.work):
        for name in [folder] + [os.path.join(folder, f) for f in files]:
            os.chown(name, NOBODY, NOBODY)
    done = session.cli("restore", f"{session.store}@{taken}", check=False)
    check(done.returncode == 125 and "--any-owner" in done.stderr, done.stderr)
    try:
        restored = session.restore(taken, ["--any-owner"])
    except Failure as failure:  # refused is right as well, when it is for what the owner may not have
        check("nobody" in str(failure), f"refused, but not for that: {failure}")
        return
    try:
        for pid in (restored.pid, restored.restored_pid):
            fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
            check(set(fields["Uid"].split()) == {str(NOBODY)}, f"process {pid} runs as {fields['Uid']}")
            check(set(fields["Gid"].split()) == {str(NOBODY)}, f"process {pid} runs in group {fields['Gid']}")
            check(fields["Groups"].split() in ([], [str(NOBODY)]), f"process {pid} is in groups {fields['Groups']}")
    finally:
        session.kill(restored, restored.restored_pid)
    # A store of root's own that a stranger may write to is not taken either.
    for folder, _, files in os.walk(session.work):
        for name in [folder] + [os.path.join(folder, f) for f in files]:
            os.chown(name, 0, 0)
    session.store.chmod(0o777)
    done = session.cli("restore", f"{session.store}@{taken}", "--any-owner", check=False)
    check(done.returncode == 125 and "can be written by other users" in done.stderr, done.stderr)


def run_into_a_store_of_a_stranger(session):
    """Root's program does not write into it, whatever it is told, nor into one of root's own that strangers may change."""
    process, _ = snapshot(session)
    session.kill(process)
    before = sorted(session.store.rglob("*"))
    for owner, mode, words in ((NOBODY, 0o700, f"belongs to user {NOBODY}"), (0, 0o777, "can be written by other users")):
        for path in (session.store, *session.store.rglob("*")):
            os.chown(path, owner, owner)
        session.store.chmod(mode)
        for options in (["--any-owner"], ["--any-owner", "--job", "a"]):
            done = session.cli("run", *options, "--store", session.store, "--", "true", check=False)
            check(words in done.stderr, f"run {options}: {done.stderr}")
        process = session.run(counter(session), f"mode{mode:o}", GPUCKPT_ANY_OWNER="1")
        session.wait_lines(3, process, f"mode{mode:o}")
        done = session.cli("checkpoint", process.pid, check=False)
        session.kill(process)
        check(done.returncode == 14 and words in done.stderr, f"checkpoint: exit {done.returncode}: {done.stderr}")
        check(sorted(session.store.rglob("*")) == before, "something was written")
        check({p.stat().st_uid for p in session.store.rglob("*")} == {owner}, "something was written anew")


COLLIDING = r"""
import mmap, struct, time
# Two contents with one XXH3-128 (its secret is public): where the upper half of a lane is the
# secret's, the lower half only counts as a summand, and two stripes of a block cancel each other.
def page(size, step):
    lanes = {0: 0xbe4ba423 << 32 | 1000 + step, 64: 0x1cad21f7 << 32 | 5000 - step}
    out = bytearray(b"what stands here is the same in all of them. " * (size // 45 + 1))[:size]
    for at, lane in lanes.items():
        struct.pack_into("<Q", out, at, lane)
    return out
memory = mmap.mmap(-1, 16 * 4096)
for step in range(16):
    memory[4096 * step:4096 * step + 4096] = bytes(page(4096, step))
while True:
    right = all(memory[4096 * s:4096 * s + 4096] == page(4096, s) for s in range(16))
    print("right" if right else "WRONG", flush=True)
    time.sleep(0.02)
"""


def pages_with_equal_hashes(session):
    """A program stores what strangers send: pages that have one name under a hash with a public secret come back each as it was."""
    script = session.work / "colliding.py"
    script.write_text(COLLIDING)
    try:
        import xxhash
    except ImportError:
        xxhash = None
    if xxhash:
        names = {}
        exec(COLLIDING.split("memory =")[0], names)
        check(len({xxhash.xxh3_128_hexdigest(bytes(names["page"](4096, s))) for s in range(16)}) == 1, "they do not collide")
    for options in ([], ["--key-file", session.work / "key"]):
        session.store = session.work / f"store{len(options)}"
        if options:
            options[1].write_bytes(os.urandom(32))
            options[1].chmod(0o600)
        (session.work / "out").unlink(missing_ok=True)
        process = session.run([sys.executable, script], options=options)
        session.wait_lines(3, process)
        done = session.cli("checkpoint", process.pid)
        check(not done.returncode, done.stderr)
        session.kill(process)
        before = len(session.lines())
        restored = session.restore("latest", options)
        session.wait_lines(before + 5, restored)
        session.kill(restored, restored.restored_pid)
        check(set(session.lines()) == {"right"}, f"one page came back with another's bytes: {set(session.lines())}")


CASES = [pages_with_equal_hashes, tail_made_beforehand, links_at_status_files, export_into_a_file_that_is_read, squatted_session_folder,
         store_of_a_stranger, run_into_a_store_of_a_stranger]


def main():
    if os.getuid() != 0:
        print("SKIPPED: needs root, who plays both sides")
        return 0
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    harness.ordinary_user.require(tools.build)
    return harness.run_in_sessions(CASES, lambda: Session(tools), sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
