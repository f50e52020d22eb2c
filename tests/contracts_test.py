#!/usr/bin/env python3
"""Each header of src says its contract: contracts_test.py

Fear: a header is added, or its comment rewritten, and nothing says any more who frees what it declares, on which threads its
functions may be called, and how they report a failure. Each header of src, generated ones too, has a comment with the three words
"Owner:", "Threads:" and "Errors:", each followed by a sentence."""
import re
import sys

from tracked import ROOT, tracked

PARTS = ("Owner", "Threads", "Errors")


def missing(text):
    """The parts that the comments of a header do not have."""
    comments = " ".join(line.strip().lstrip("/ ") for line in text.splitlines() if line.strip().startswith("//"))
    return [part for part in PARTS if not re.search(rf"\b{part}: \S", comments)]


def main():
    assert missing("// Owner: the caller. Threads: any.\n// Errors: none.\n") == []
    assert missing("// Owner: the caller. Threads: any.\nint errors;  // Errors: none.\n") == ["Errors"]
    wrong = [f"{f}: no \"{part}:\" in its comments" for f in tracked("src/*.h") for part in missing((ROOT / f).read_text())]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
