#!/usr/bin/env python3
"""Our libcudart.so.13 exports what NVIDIA's does, no more and no less: exports_test.py OURS [NVIDIA'S].

Passes with a word about it when this machine has no CUDA toolkit's to compare with.
"""
import subprocess
import sys
from pathlib import Path


def exported(path):
    lines = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return {line.split()[-1] for line in lines if line.split()[-1] != "libcudart.so.13"}


def main():
    if len(sys.argv) < 3 or not Path(sys.argv[2]).exists():
        print("no CUDA toolkit's libcudart.so.13 here to compare with")
        return 0
    ours, theirs = exported(sys.argv[1]), exported(sys.argv[2])
    for name in sorted(theirs - ours):
        print(f"missing: {name}")
    for name in sorted(ours - theirs):
        print(f"not in NVIDIA's: {name}")
    print(f"{len(ours)} symbols")
    return 1 if ours != theirs else 0


if __name__ == "__main__":
    sys.exit(main())
