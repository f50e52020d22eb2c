#!/usr/bin/env python3
"""Standard input, output and error that are pipes, and that a daemon keeps under other numbers, are those of whoever restores it:
standard_pipes_test.py [--build DIR]"""
import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from features_test import Failure, Run


class Piped(Run):
    def popen(self, command, out, err, **env):
        process = subprocess.Popen(self.wrapped(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   cwd=self.work, env=self.environment(**env), start_new_session=True)
        os.set_blocking(process.stdout.fileno(), False)
        self.out = b""
        self.started.append(process)
        return process

    def says(self, word):
        self.out += self.started[-1].stdout.read() or b""
        return word in self.out.decode().split("\n")


def go(run):
    process = run.popen([run.build / "tests" / "features" / run.feature], "out", "err",
                        LD_PRELOAD=str(run.build / "lib" / "libgpuckpt.so"))
    run.until(lambda: run.says("ready"), process, "before it was ready")
    pid = process.pid
    for number in (1, 2):  # the second of what was restored
        done = run.checkpoint(pid)
        if done.returncode != 0:
            raise Failure(f"checkpoint {number}: exit {done.returncode}: {done.stderr.strip()}")
        run.kill(process, pid)
        process, pid = run.restore(number)
    process.stdin.close()
    run.release()
    run.finish(process)
    if b"to the error\n" not in process.stderr.read():
        raise Failure("what it wrote to standard error did not come")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=Path("build"))
    run = Piped("fd_standard_moved", "root", parser.parse_args().build.resolve())
    try:
        go(run)
        shutil.rmtree(run.work)
    except Failure as failure:
        errors = [p.stderr.read() for p in run.started if p.poll() is not None and not p.stderr.closed]
        sys.exit(f"FAILED {failure}; left for inspection: {run.work}\n{errors}")
    finally:
        for process in run.started:
            if process.poll() is None:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
