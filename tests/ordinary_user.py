"""User nobody, to whom a test that root runs drops. What is built must lie where nobody can enter."""
import os
from pathlib import Path

NOBODY = 65534


def can_enter(folder):
    """May everybody look up names in the folder? (Asked of the mode bits: access control lists are not looked at.)"""
    return all(f.stat().st_mode & 0o001 for f in (folder, *folder.parents))


def require(build):
    """Ends the test before a program of nobody fails with "Permission denied", and one that ctest started without the label by which
    ./check leaves it out (cmake/needs_nobody.cmake)."""
    if os.getuid() != 0:
        return
    under_ctest = "CTEST_INTERACTIVE_DEBUG_MODE" in os.environ
    if under_ctest and "GPUCKPT_TEST_NEEDS_NOBODY" not in os.environ:
        raise SystemExit("this test drops to user nobody: add it to needs_nobody() in its CMakeLists.txt")
    if not can_enter(Path(build).resolve()):
        raise SystemExit(f"user nobody cannot enter {build}: move it to a folder that everyone may enter, or test as an ordinary user")
