#!/usr/bin/env python3
"""Lays out what the site shows: site_pages.py FOLDER

Every tracked Markdown file goes to its path below FOLDER, and every other file that one of them links to as text beside it,
so that all relative links work on the site as they do in the checkout.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def pages():
    listed = subprocess.run(["git", "-C", SOURCE, "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard", "*.md"],
                            check=True, capture_output=True, text=True)
    return [Path(name) for name in listed.stdout.split("\0") if name and (SOURCE / name).exists()]


def main():
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages():
        out = folder / page
        out.parent.mkdir(parents=True, exist_ok=True)

        def link(match):
            target, part = match[1], match[2] or ""
            path = (SOURCE / page.parent / target).resolve()
            if re.match(r"[a-z]+:", target) or path.suffix == ".md":
                return match[0]
            if path.is_dir():
                return f"]({target.rstrip('/')}/README.md{part})" if (path / "README.md").exists() else match[0]
            copy = folder / path.relative_to(SOURCE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, f"{copy}.txt")  # a browser shows it, and does not download it
            return f"]({target}.txt{part})"

        out.write_text(LINK.sub(link, (SOURCE / page).read_text()))


if __name__ == "__main__":
    main()
