#!/usr/bin/env python3
"""Every verb, option and exit code of the help is in a man page, and groff has nothing to say: man_test.py BUILD_DIR"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]


def plain(page):
    """The page's words, without roff."""
    text = page.read_text()
    text = re.sub(r"\\f[BIR]|\\&", "", text)
    return text.replace("\\-", "-").replace("\\e", "\\")


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def main():
    gpuckpt = Path(sys.argv[1]) / "bin/gpuckpt"
    folder = Path(tempfile.mkdtemp(prefix="gpuckpt-man-"))
    problems = []
    made = run(SOURCE / "scripts/man", gpuckpt, folder)
    if made.returncode:
        sys.exit(made.stderr)
    # Read here in another way than the script reads: by words only.
    verbs = re.findall(r"(?m)^  ([a-z]+)  ", run(gpuckpt, "--help").stdout)
    if len(verbs) < 10:
        problems.append(f"only these verbs were found in the help: {verbs}")
    for verb in verbs:
        page = folder / f"gpuckpt-{verb}.1"
        if not page.exists():
            problems.append(f"no man page of {verb}")
            continue
        words = plain(page)
        shown = run(gpuckpt, verb, "--help").stdout
        for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+|(?<![\w-])-[a-z](?=,)|GPUCKPT_[A-Z_]+", shown)):
            if option not in words:
                problems.append(f"{page.name} does not have {option}")
        for number, meaning in re.findall(r"(?m)^  (\d+) +(.*)$", shown[shown.index("Exit codes:"):]):
            if not re.search(rf"(?mi)^{number}\n{re.escape(meaning)}\.$", words):
                problems.append(f"{page.name} does not have exit code {number}: {meaning}")
        if f"gpuckpt-{verb}(1)" not in plain(folder / "gpuckpt.1"):
            problems.append(f"gpuckpt.1 does not name gpuckpt-{verb}")
    for page in sorted(folder.iterdir()):
        if shutil.which("groff") and (said := run("groff", "-man", "-ww", "-Tascii", "-z", page).stderr):
            problems.append(said)
    shutil.rmtree(folder)
    print("\n".join(problems) or f"{len(verbs)} verbs have complete man pages")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
