"""The processes below a process, as /proc tells."""
import os
import signal
import time
from pathlib import Path


def parents():
    """pid -> (parent, state)"""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            except OSError:
                continue
            found[int(entry.name)] = (int(fields[1]), fields[0])
    return found


def name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def family(root):
    """It and its descendants, parents first."""
    table, members = parents(), [root]
    for member in members:
        members += [pid for pid, (parent, state) in table.items() if parent == member]
    return members


def started_with(text):
    """Processes whose environment has it: also those whose parents have ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if text.encode() in (entry / "environ").read_bytes() and "gpuckpt-" not in (entry / "comm").read_text(errors="replace"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def kill_family(process, text=None):
    """Ends it with all below it: those of a restored program are below its launcher. Parents first: none sees a child end.
    And whoever was started with `text`."""
    members = family(process.pid)
    members += [m for m in (started_with(text) if text else []) if m not in members]
    for member in members:
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait(30)
    begin = time.monotonic()
    while any(parents().get(m, (0, "Z"))[1] not in "ZX" for m in members) and time.monotonic() - begin < 10:
        time.sleep(0.01)
