"""The files of the checkout, for tests that look through its sources and pages."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tracked(*patterns):
    """Paths from the root, as text, of what git tracks (of these folders or patterns) and is there. Where there is no git, the test
    is skipped."""
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        print("no git here: nothing was tested")
        sys.exit(77)
    return [f for f in listed.stdout.split("\n") if f and (ROOT / f).exists()]
