#!/usr/bin/env python3
"""Operators of --sim=torch: operators_test.py [--build DIR] [--python PYTHON] PROGRAM
PROGRAM, beside this one, prints a line that begins with ok for each check, and end. Skipped (exit 77) like torch_test.py."""
import argparse
import os
import sys
from pathlib import Path

import torch_test
from torch_test import harness


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build")
    parser.add_argument("--python", default=os.environ.get("GPUCKPT_TORCH_PYTHON", harness.SOURCE / ".deps" / "torch" / "bin" / "python"))
    parser.add_argument("program")
    options = parser.parse_args()
    if why := torch_test.missing(options.python):
        print(f"skipped: {why}")
        return 77
    with torch_test.Session(torch_test.Tools(harness.find_build(options.build), options.python)) as session:
        status = session.finish(session.python(Path(__file__).with_name(options.program), [], under_gpuckpt=False), 600)
        lines = session.lines()
        print("\n".join(lines))
        if status != 0 or len(lines) < 2 or lines[-1] != "end" or any(not line.startswith("ok ") for line in lines[:-1]):
            print(f"it ended with {status}: {session.errors('out')}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
