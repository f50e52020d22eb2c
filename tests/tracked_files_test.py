#!/usr/bin/env python3
"""No recording, build product or other large binary file is tracked: tracked_files_test.py [SOURCE_DIR]"""
import subprocess
import sys
from pathlib import Path

LARGEST_BINARY = 64 * 1024


def is_binary(path):
    with open(path, "rb") as file:
        return b"\0" in file.read(64 * 1024)


def main():
    source = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
    listed = subprocess.run(["git", "-C", source, "-c", "safe.directory=*", "ls-files", "-z"], capture_output=True)
    if listed.returncode != 0:
        print("skipped: not a git checkout")
        return 77
    paths = [source / name for name in listed.stdout.decode().split("\0") if name]
    large = [p for p in paths if p.is_file() and p.stat().st_size > LARGEST_BINARY and is_binary(p)]
    for path in large:
        print(f"{path.relative_to(source)} is a binary file of {path.stat().st_size} bytes: git rm it, or make it at build time")
    print(f"{len(paths)} files are tracked")
    return 1 if large or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
