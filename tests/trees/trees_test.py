#!/usr/bin/env python3
"""Programs of several processes, as features_test.py runs those of one: trees_test.py FLAVOUR [PROGRAM...] [--build DIR]

All processes are killed before the restore.
"""
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCE.parent / "features"))
import family  # noqa: E402
import features_test  # noqa: E402


class Tree(features_test.Run):
    def kill(self, process, pid=None):
        family.kill_family(process)


features_test.SOURCE = SOURCE
features_test.FOLDER = "trees"
features_test.REFUSED = {}
# Not found yet, see docs/LIMITS.md: on a busy machine a restored parent misses a child in one of 12 to 40 runs.
features_test.NOT_IN = {flavour: {"flighty": "its parent may miss a child"} for flavour in ("root", "nobody", "twice")}
features_test.Run = Tree
features_test.main()
