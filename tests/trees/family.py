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
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            found[int(entry.name)] = (int(fields[1]), fields[0])
    return found


def family(root):
    """It and its descendants, parents first."""
    table, members = parents(), [root]
    for member in members:
        members += [pid for pid, (parent, state) in table.items() if parent == member]
    return members


def kill_family(process):
    """Ends it with all below it: those of a restored program are below its launcher. Parents first: none sees a child end."""
    members = family(process.pid)
    for member in members:
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait(30)
    begin = time.monotonic()
    while any(parents().get(m, (0, "Z"))[1] not in "ZX" for m in members) and time.monotonic() - begin < 10:
        time.sleep(0.01)
