#!/usr/bin/env python3
"""The layers of src and simgpu, read off the includes: layering_test.py

A part may include itself and what stands in MAY for it; a folder in MAY (restore/entry) stands for itself. Unit tests
may include more. snapshot, store and restore name no CUDA. Every folder has a README.md, and every include of the
project's own is the path from src or simgpu, so that a reader sees which part it comes from."""
import re
import sys
from pathlib import Path

from tracked import ROOT, tracked

MAY = {
    "base": set(),
    "client": set(),
    "intercept": {"base"},
    "device": {"base", "intercept", "snapshot/api"},  # snapshot/api/device_plugin.h is the contract of the two
    "snapshot": {"base"},
    "store": {"base"},
    "restore": {"base", "store"},
    "restore/supervisor": {"base", "store", "restore"},  # it calls all rooms of restore, and none of them calls it
    "restore/entry": {"base", "snapshot", "restore/protocol"},
    "restore/launcher": {"base", "restore/protocol"},
    "writer": {"base", "store", "restore/image", "restore/preflight", "restore/files"},
    "preload": set(),
    "ptx": set(),  # of simgpu
    "driver": {"ptx"},
    "ptxas": {"ptx"},
    "compilers": {"ptx"},
    "runtime": set(),
}
NO_CUDA = ("base", "snapshot", "store", "restore", "writer", "preload")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def part_of(path):
    """The longest entry of MAY that a path below src or simgpu lies in."""
    names = ["/".join(path.parts[:n]) for n in range(len(path.parts) - 1, 0, -1)]
    return next((name for name in names if name in MAY), None)


def main():
    wrong = []
    files = [Path(f) for f in tracked("src", "simgpu")]
    folders = set()
    for file in files:
        inside = Path(*file.parts[1:])
        if file.suffix in (".h", ".cc", ".c", ".S", ".cu"):
            folders |= {file.parent, Path(file.parts[0])}
        if file.suffix not in (".h", ".cc", ".c") or "tests" in file.parts:
            continue
        part = part_of(inside)
        if part is None:
            wrong.append(f"{file}: its part is not in the table of this test")
            continue
        for kind, name in INCLUDE.findall((ROOT / file).read_text()):
            if part.split("/")[0] in NO_CUDA and re.match(r"cuda|nv|driver_types", name):
                wrong.append(f"{file} includes {name}: this part names no CUDA")
            if kind == "<" or name.split("/")[0] not in {p.split("/")[0] for p in MAY}:
                continue
            target = Path(name)
            allowed = MAY[part] | {part}
            if not any(target.is_relative_to(a) for a in allowed):
                wrong.append(f"{file} includes {name}: {part} may use {', '.join(sorted(allowed))}")
            elif part_of(target) not in allowed and part_of(target) != part_of(target).split("/")[0]:
                wrong.append(f"{file} includes {name}: {part_of(target)} is for its own use")
    for folder in sorted(folders):
        if not (ROOT / folder / "README.md").exists():
            wrong.append(f"{folder}/README.md is missing: what lives here, who may use it, what it must not know")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
