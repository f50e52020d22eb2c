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
features_test.NOT_IN = {}
features_test.Run = Tree
features_test.main()
