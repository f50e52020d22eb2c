#!/usr/bin/env python3
"""Every file that a comment or a page names is there: file_names_test.py

Fear: a reader follows a comment to a file that was renamed or never written. Looked at are the comments of the sources
and all text of the pages. A name may be the end of a path (`park.h`, `job/barrier.cc`) or of a file's name (`_ops.cc`); a path
that begins with a folder of the root (`src/device/hooks/`) must be there as it stands."""
import ast
import io
import re
import sys
import tokenize

from tracked import ROOT, tracked

# What is not ours, is made by the build, or is a reader's own file.
FOREIGN = {
    "cuda.h", "cudaTypedefs.h", "mma.h", "fs/aio.c", "fs/proc/task_mmu.c", "linux/fs.h", "linux/pidfd.h",
    "linux/userfaultfd.h", "libunwind-x86_64.h",
    "door_stubs.S", "fake_stubs.c",
    "program.c", "serve.py", "file.cu", "DIR/table.md", "table.md", "Objects/locations.md",
    "add.cc", "sub.cc", "mad.lo/hi.cc",  # instructions of PTX
}
HISTORY = ("CHANGELOG.md", "changelog/")
NAME = re.compile(r"(?<![\w/.<*-])((?:[\w.-]+/)*[\w-]+\.(?:cc|h|c|py|md|cu|cuh|sh|csv|cmake|S|lds))(?![\w/*(-]|\.\w)")
PLACE = re.compile(r"`((?:src|simgpu|tests|tools|include|scripts|docs|cmake|examples|bench|python|demo)/[\w./-]*)`")
TEMPLATE = re.compile(r"(?:^|/)[A-Z_]*[A-Z]{3,}[A-Z_]*[._]")  # NAME.c, SECTION.csv


def comments_of_c(text):
    """(line, comment) of a source in C or C++. A string that holds a comment's sign is taken for one, which does no harm here."""
    for found in re.finditer(r"//[^\n]*|/\*.*?\*/", text, re.S):
        for offset, line in enumerate(found.group().split("\n")):
            yield text.count("\n", 0, found.start()) + 1 + offset, line


def comments_of_python(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node, clean=False):
            for offset, line in enumerate(ast.get_docstring(node, clean=False).split("\n")):
                yield node.body[0].lineno + offset, line


def comments_of_shell(text):
    for number, line in enumerate(text.split("\n"), 1):
        if found := re.search(r"(^|\s)#.*", line):
            yield number, found.group()


def told(file, text):
    if file.endswith((".cc", ".h", ".c", ".cu", ".S")):
        return comments_of_c(text)
    if file.endswith(".py"):
        return comments_of_python(text)
    if file.endswith(".md"):
        return enumerate(text.split("\n"), 1)
    if file.endswith((".txt", ".cmake", ".sh")):
        return comments_of_shell(text)
    return ()


def main():
    files = tracked()
    ends = {"/".join(f.split("/")[n:]) for f in files for n in range(f.count("/") + 1)}
    folders = {"/".join(f.split("/")[:n]) for f in files for n in range(1, f.count("/") + 1)}
    wrong = []
    looked_at = 0
    for file in files:
        if file.startswith(HISTORY) or "/generated/" in file:
            continue
        for number, text in told(file, (ROOT / file).read_text(errors="replace")):
            for name in NAME.findall(text):
                looked_at += 1
                if name in FOREIGN or TEMPLATE.search(name) or name.removeprefix("./").removeprefix("../") in ends:
                    continue
                if name.startswith("_") and any(f.endswith(name) for f in files):
                    continue
                if (ROOT / file).parent.joinpath(name).resolve().exists():
                    continue
                wrong.append(f"{file}:{number}: there is no file {name}")
            for place in PLACE.findall(text):
                if TEMPLATE.search(place + "."):
                    continue
                if place.rstrip("/") not in ends and place.rstrip("/") not in folders:
                    wrong.append(f"{file}:{number}: there is no {place}")
    print("\n".join(wrong) or f"{looked_at} names lead to files")
    return 1 if wrong or looked_at < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
