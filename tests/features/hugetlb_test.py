#!/usr/bin/env python3
"""A restore where the pool of huge pages is too small is refused before anything starts; with enough pages it works."""
import argparse
import sys
from pathlib import Path

from features_test import HUGE_PAGES, Failure, Run, failure_text
from huge_pool import HugePages, change


def too_small(run):
    process = run.popen([run.build / "tests" / "features" / "memory_hugetlb"], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    done = run.checkpoint(process.pid)
    if done.returncode:
        raise Failure(done.stderr)
    run.kill(process)
    change(-HUGE_PAGES)
    try:
        begun = run.popen([run.build / "bin" / "gpuckpt", "restore", f"{run.work / 'store'}@latest", "--pid-file",
                           run.work / "pid"], "restore", "restore.err")
        text = (run.work / "restore.err").read_text() if begun.wait(60) == 125 else "not refused"
        if "needs 5 huge pages of 2 MiB and 0 are free here" not in text or "vm.nr_hugepages" not in text:
            raise Failure(f"what was said: {text}")
    finally:
        change(HUGE_PAGES)
    process, _ = run.restore(1)
    run.release()
    run.finish(process)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=Run.SOURCE.parents[1] / "build")
    build = parser.parse_args().build.resolve()
    with HugePages(HUGE_PAGES, alone=True) as there:
        if not there:
            print("skipped: the machine's huge pages are not ours alone")
            sys.exit(77)
        run = Run("hugetlb_too_small", "root", build)
        try:
            too_small(run)
        except Failure as failure:
            sys.exit(f"{failure}{failure_text(run.work)}")
        finally:
            for process in run.started:
                if process.poll() is None:
                    process.kill()


if __name__ == "__main__":
    main()
