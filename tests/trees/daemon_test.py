#!/usr/bin/env python3
"""Programs that become daemons (programs/daemon.c): the process that is asked, restored and waited for is not the one that was started.

daemon_test.py [KIND...] [--build DIR] [--nobody]
"""
import argparse
import os
import signal
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCE.parent / "features"))
import family  # noqa: E402
import features_test  # noqa: E402
from features_test import Failure  # noqa: E402


class Daemon(features_test.Run):
    def marked(self):
        return family.started_with(f"GPUCKPT_STORE={self.work}/store")

    def end_all(self):
        begin = time.monotonic()
        while marked := self.marked():
            for pid in marked:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if time.monotonic() - begin > 10:
                raise Failure("does not die")
            time.sleep(0.01)

    def start(self):
        process = self.popen([self.build / "tests" / "trees" / "programs" / "daemon", self.feature], "out", "err",
                             LD_PRELOAD=str(self.build / "lib" / "libgpuckpt.so"))
        if process.wait(20) != 0:
            raise Failure("did not start")
        begin = time.monotonic()
        while not (self.work / "daemon").exists():
            if time.monotonic() - begin > 20:
                raise Failure("no daemon")
            time.sleep(0.01)
        return int((self.work / "daemon").read_text())

    def expect_processes(self, text, count):
        if count > 1 and f"{count} processes" not in text:
            raise Failure(f"not a job of {count} processes: {text}")

    def go(self):
        pid = self.start()
        count = {"two": 2, "pair": 2, "turned": 2}.get(self.feature, 1)
        for _ in range(2):  # the second one knows of the first
            done = self.checkpoint(pid)
            if done.returncode != 0:
                raise Failure(f"checkpoint: exit {done.returncode}: {done.stderr.strip()}")
            self.expect_processes(done.stderr, count)
        self.end_all()
        process, restored = self.restore(1)
        done = self.checkpoint(restored)
        if done.returncode != 0:
            raise Failure(f"checkpoint of the restored program: exit {done.returncode}: {done.stderr.strip()}")
        self.expect_processes(done.stderr, count)
        self.end_all()
        process.wait(20)
        process, restored = self.restore(2)
        self.release()
        self.finish(process)
        if self.says("alone"):
            raise Failure("a daemon found itself alone")

    def run(self):
        result = super().run()
        self.end_all()
        return result


class Stopped(Daemon):
    """checkpoint --stop ends all of a job."""

    def go(self):
        self.feature = "two"
        pid = self.start()
        done = self.checkpoint(pid, "--stop")
        if done.returncode != 0:
            raise Failure(f"checkpoint --stop: exit {done.returncode}: {done.stderr.strip()}")
        begin = time.monotonic()
        while self.marked():
            if time.monotonic() - begin > 10:
                raise Failure(f"somebody lives on: {self.marked()}")
            time.sleep(0.01)
        process, _ = self.restore(1)
        self.release()
        self.finish(process)


CASES = {"one": Daemon, "two": Daemon, "exec": Daemon, "pair": Daemon, "turned": Daemon, "stopped": Stopped}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*")
    parser.add_argument("--build", type=Path, default=SOURCE.parents[1] / "build")
    parser.add_argument("--nobody", action="store_true")
    options = parser.parse_args()
    failed = 0
    for case in options.case or CASES:
        run = CASES[case](case, "nobody" if options.nobody else "root", options.build.resolve())
        wrong, seconds = run.run()
        failed += wrong is not None
        print(f"{'FAILED' if wrong else 'ok':7}{case:24}{seconds:6.1f} s" + (f"  {wrong}" if wrong else ""), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
