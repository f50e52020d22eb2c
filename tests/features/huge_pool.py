"""Pages of the machine's pool of huge pages (2 MiB), for as long as a test needs them.

A user who may adds as many to the pool as it asks for and takes as many away in the end, so that tests at the same time have
theirs each. Locks are on the kernel's own files, which everybody may open.
"""
import fcntl
from pathlib import Path

POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


def number(name):
    return int((POOL / name).read_text())


def change(by):
    """Makes the pool larger or smaller; false: not allowed, or the machine has no memory for it."""
    try:
        with open("/proc/sys/vm/nr_hugepages") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = number("nr_hugepages")
            (POOL / "nr_hugepages").write_text(str(before + by))
            if by > 0 and number("nr_hugepages") < before + by:
                (POOL / "nr_hugepages").write_text(str(before))
                return False
        return True
    except OSError:
        return False


class HugePages:
    """`with HugePages(16) as there:`; false: there are none, and we may not make some. `alone`: nobody else has some."""

    def __init__(self, pages, alone=False):
        self.pages, self.alone, self.added = pages, alone, False

    def __enter__(self):
        if not POOL.is_dir():
            return False
        self.lock = open(POOL / "nr_hugepages")
        fcntl.flock(self.lock, fcntl.LOCK_EX if self.alone else fcntl.LOCK_SH)
        if self.alone and number("nr_hugepages"):
            return False
        self.added = change(self.pages)
        return self.added or number("free_hugepages") - number("resv_hugepages") >= self.pages

    def __exit__(self, *_):
        if self.added:
            change(-self.pages)
