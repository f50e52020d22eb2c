#!/usr/bin/env python3
"""A program that set its terminal to raw mode finds it so after a restore in another terminal, which has its own settings
back when the program has ended: launcher_terminal_test.py [--build DIR]"""
import argparse
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent


def until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"nothing after {seconds} s: {what}")
        time.sleep(0.01)


def start(command, terminal, work, **env):
    """In a session of its own that has the terminal, as a login shell has."""
    def lead():
        os.setsid()
        import fcntl
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(work), "GPUCKPT_SESSION_DIR": str(work / "session"),
            "GPUCKPT_STORE": str(work / "store")}
    return subprocess.Popen([str(c) for c in command], stdin=terminal, stdout=open(work / "out", "ab"),
                            stderr=open(work / "err", "ab"), cwd=work, env={**base, **env}, preexec_fn=lead)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=SOURCE.parents[1] / "build")
    build = parser.parse_args().build.resolve()
    work = Path(tempfile.mkdtemp(prefix="gpuckpt-terminal-"))
    out = work / "out"
    out.touch()
    first, second = pty.openpty(), pty.openpty()
    program = start([build / "tests/features/terminal_of_launcher"], first[1], work,
                    LD_PRELOAD=str(build / "lib/libgpuckpt.so"))
    until(lambda: "ready" in out.read_text(), "the program is not ready")
    raw = termios.tcgetattr(first[1])
    subprocess.run([build / "bin/gpuckpt", "checkpoint", str(program.pid)], check=True, capture_output=True, timeout=60,
                   env={"GPUCKPT_SESSION_DIR": str(work / "session")})
    program.send_signal(signal.SIGKILL)
    program.wait()
    before = termios.tcgetattr(second[1])
    if raw[:4] == before[:4]:
        sys.exit("the terminal was raw already")
    pid_file = work / "pid"
    restore = start([build / "bin/gpuckpt", "restore", f"{work}/store@latest", "--pid-file", pid_file], second[1], work)
    until(lambda: pid_file.exists() and pid_file.read_text().strip() or restore.poll() is not None, "not restored")
    until(lambda: termios.tcgetattr(second[1])[:4] == raw[:4] or restore.poll() is not None,
          "the restored program's terminal has other settings")
    (work / "go_on").touch()
    status = restore.wait(30)
    text = out.read_text() + (work / "err").read_text()
    if status or "survived" not in text:
        sys.exit(f"ended with {status}: {text}")
    if termios.tcgetattr(second[1]) != before:
        sys.exit("the terminal has not its own settings back")
    shutil.rmtree(work)
    print("raw while the program ran, as before after it")


if __name__ == "__main__":
    main()
