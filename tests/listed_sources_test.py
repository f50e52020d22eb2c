#!/usr/bin/env python3
"""Every source is built, and no folder of sources is globbed: listed_sources_test.py BUILD_DIR

Fear: a source or a test lies in its folder and nothing compiles it, so that nobody sees that it is wrong. Each .cc, .c, .S and
.cu that is tracked occurs in the build's rules (build.ninja), or a file of its folder names it: a script that compiles it, a
source that includes it."""
import sys
from pathlib import Path

from tracked import ROOT, tracked

# Of Catch2 2 only: version 3 brings its own main (cmake/catch.cmake).
NOT_EVERYWHERE = {"tests/catch_main.cc"}
# A script compiles whatever lies there.
COMPILED_BY_A_SCRIPT = {"tests/conformance/corpus", "bench/gpu/probe"}


def named_beside(file):
    return any(file.name in f.read_text(errors="replace") for f in (ROOT / file).parent.iterdir()
               if f.is_file() and f.name != file.name and f.suffix != ".md")


def main():
    rules = (Path(sys.argv[1]) / "build.ninja").read_text()
    with_cuda = ".cu " in rules
    wrong = []
    for file in map(Path, tracked()):
        if file.name == "CMakeLists.txt" and "file(GLOB" in (ROOT / file).read_text():
            wrong.append(f"{file} takes whatever lies in its folder (GLOB): list the sources")
        if file.suffix not in (".cc", ".c", ".S", ".cu") or str(file) in NOT_EVERYWHERE or str(file.parent) in COMPILED_BY_A_SCRIPT:
            continue
        if file.suffix == ".cu" and not with_cuda or f"{ROOT}/{file}" in rules:
            continue
        if not named_beside(file):
            wrong.append(f"nothing compiles {file}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
