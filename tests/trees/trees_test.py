#!/usr/bin/env python3
"""Programs of several processes, as features_test.py runs those of one: trees_test.py FLAVOUR [PROGRAM...] [--build DIR]

All processes are killed before the restore.
"""
import os
import signal
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCE.parent / "features"))
import features_test  # noqa: E402


def parents():
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
    table, members = parents(), [root]
    for member in members:
        members += [pid for pid, (parent, state) in table.items() if parent == member]
    return members


class Tree(features_test.Run):
    def kill(self, process, pid=None):
        # Below the launcher when it is restored; the first of a namespace takes the others along.
        members = family(process.pid)
        for member in reversed(members):
            try:
                os.kill(member, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait(30)
        begin = time.monotonic()
        while any(parents().get(m, (0, "Z"))[1] not in "ZX" for m in members) and time.monotonic() - begin < 10:
            time.sleep(0.01)


features_test.SOURCE = SOURCE
features_test.FOLDER = "trees"
features_test.REFUSED = {}
features_test.NOT_IN = {}
features_test.Run = Tree
features_test.main()
