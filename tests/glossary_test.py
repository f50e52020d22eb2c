#!/usr/bin/env python3
"""docs/glossary.md holds for the code: glossary_test.py

Each word of the first table occurs in the sources; no word of the second table ("Not used") does, in the folders it
names. Both are found as whole words, in capitals too, and as parts of identifiers (io_thread, IoThread, kIoThread)."""
import re
import sys

from tracked import ROOT, tracked

SOURCES = (".h", ".cc", ".c", ".S", ".py", ".cu")


def tables():
    """The rows of each table: lists of cells without their header."""
    found, current = [], None
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        if not line.startswith("|"):
            current = None
            continue
        if current is None:
            current = []
            found.append(current)
        current.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[2:] for rows in found]


def sources(folders):
    return [ROOT / f for f in tracked(*folders) if f.endswith(SOURCES) and "/generated/" not in f]


def as_part(word):
    """A regular expression: the word, or the identifiers that begin or end with it or have it in the middle."""
    camel = "".join(part.capitalize() for part in word.split())
    snake = word.replace(" ", "_")
    upper = word.upper()
    return re.compile(rf"(?<![A-Za-z])k?{camel}(?![a-z])|[a-z0-9]{camel}(?![a-z])|(?<![A-Za-z])({snake}|{upper})(?![A-Za-z])")


def main():
    words, banned = tables()
    wrong = []
    everything = "\n".join(f.read_text(errors="replace") for f in sources(["src", "include", "tools", "simgpu"])).lower()
    for word, _ in words:
        plain = word.replace("`", "").lower()
        if plain not in everything and plain.replace(" ", "_") not in everything:
            wrong.append(f"glossary: \"{word}\" does not occur in the code")
    for word, instead, where in banned:
        pattern = as_part(word)
        for file in sources(where.replace("`", "").replace(",", "").split()):
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
                if pattern.search(line):
                    wrong.append(f"{file.relative_to(ROOT)}:{number}: \"{word}\": say {instead}")
    print("\n".join(wrong[:60]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
