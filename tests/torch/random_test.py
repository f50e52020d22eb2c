#!/usr/bin/env python3
"""Random numbers of --sim=torch, in CUDA graphs and out of them: random_test.py [--build DIR] [--python PYTHON]
Skipped (exit 77) like torch_test.py."""
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
    options = parser.parse_args()
    if why := torch_test.missing(options.python):
        print(f"skipped: {why}")
        return 77
    with torch_test.Session(torch_test.Tools(harness.find_build(options.build), options.python)) as session:
        status = session.finish(session.python(Path(__file__).with_name("random_in_graphs.py"), [], under_gpuckpt=False), 600)
        print("\n".join(session.lines()))
        if status != 0 or len(session.lines()) != 9 or any(not line.startswith("ok ") for line in session.lines()):
            print(f"it ended with {status}: {session.errors('out')}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
