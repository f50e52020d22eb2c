#!/usr/bin/env python3
"""The loaded objects keep the promises of their import profiles: hygiene_test.py BUILD_DIR.

The preloaded library needs only libc and exports no C++ symbol; the simulated driver looks to the process as the
real one does: libc only, no thread-local storage, no libstdc++.
"""
import re
import subprocess
import sys
from pathlib import Path

LIBC = {"libc.so.6", "ld-linux-x86-64.so.2"}
# As the real driver: glibc's own parts, and nothing else.
GLIBC_PARTS = LIBC | {"libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *map(str, arguments)], check=True,
                          capture_output=True, text=True).stdout


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path)))


def exported(path):
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK", "UNIQUE") and fields[6] != "UND":
            yield fields[7].split("@")[0], fields[4]


# What else than libc may stand behind such a name (a sanitizer's function, valgrind's) must not run on our raw threads.
MEMORY_FUNCTION = re.compile(r"(__)?(mem|wmem|rawmem|str|stp|wcs|bcmp|bcopy|bzero)")
NO_MEMORY_FUNCTION = {"memfd_create"}  # whose name only looks like one


def imported(path):
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[4] in ("GLOBAL", "WEAK") and fields[6] == "UND":
            yield fields[7].split("@")[0]


def check_imports(path, problems):
    for name in imported(path):
        if MEMORY_FUNCTION.match(name) and name not in NO_MEMORY_FUNCTION:
            problems.append(f"{path.name} imports {name}: add it to src/preload/memory_functions.cc")


def check(path, allowed, problems, tls=True):
    if extra := needed(path) - allowed:
        problems.append(f"{path.name} needs {', '.join(sorted(extra))}")
    for name, binding in exported(path):
        if name.startswith("_Z") or binding == "UNIQUE":
            problems.append(f"{path.name} exports the C++ symbol {name}")
    if not tls and re.search(r"^\s+TLS\s", readelf("-l", path), re.M):
        problems.append(f"{path.name} has a TLS segment")


def main():
    lib = Path(sys.argv[1]) / "lib"
    problems = []
    preload = lib / "libgpuckpt.so"
    simulated = [lib / "simgpu" / name for name in ("libcuda.so.1", "libcudart.so.13", "libsimgpu_compilers.so")]
    for path in [preload, *simulated]:
        if not path.exists():
            problems.append(f"{path} was not built")
    if not problems:
        check(preload, LIBC, problems)
        check_imports(preload, problems)
        check(simulated[0], GLIBC_PARTS, problems, tls=False)
        check(simulated[1], GLIBC_PARTS, problems, tls=False)
        check(simulated[2], GLIBC_PARTS, problems, tls=False)
    print("\n".join(problems) or "hygiene ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
