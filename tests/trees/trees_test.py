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
import family  # noqa: E402
import features_test  # noqa: E402
import outcomes  # noqa: E402
import readback  # noqa: E402


class Tree(features_test.Run):
    SOURCE = SOURCE
    FOLDER = "trees"
    OUTCOMES = outcomes.Trees

    def kill(self, process, pid=None):
        family.kill_family(process, f"GPUCKPT_STORE={self.work}/store")

    def state(self, pid):
        members = family.started_with(f"GPUCKPT_STORE={self.work}/store")
        return readback.members_state([m for m in members if not family.name(m).startswith("gpuckpt")])

    def pagers_of(self, launcher):
        return [p for p, (parent, _) in family.parents().items()
                if parent == launcher.pid and family.name(p) == "gpuckpt-pager"]

    def restore(self, number, *more, **env):
        if "--lazy" not in more or os.getuid() != 0:
            return super().restore(number, *more, **env)
        process, pid = super().restore(number, *more, **{**env, "GPUCKPT_LAZY_DELAY_MS": "2500"})
        deadline = time.monotonic() + 2
        while len(pagers := self.pagers_of(process)) != 4:  # they are started one after the other
            if time.monotonic() > deadline:
                raise features_test.Failure(f"{len(pagers)} processes of 4 run before their memory is there")
            time.sleep(0.01)
        return process, pid

    def run(self):
        result = super().run()
        for pid in family.started_with(f"GPUCKPT_STORE={self.work}/store"):  # daemons of a program that failed
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended
        return result


if __name__ == "__main__":
    features_test.main(Tree)
