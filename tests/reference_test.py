#!/usr/bin/env python3
"""Tables of the user's pages that repeat the code are complete: reference_test.py [SOURCE_DIR]

docs/user/environment.md has every GPUCKPT_* variable that the programs read, and no other; docs/user/exit-codes.md has
every exit code with its number; the messages of docs/user/troubleshooting.md are messages of the code; all relative links
of the documentation lead to a file and a heading that exist; so do the files that CONTRIBUTING.md and mkdocs.yml name;
the Python package has the version of the project.
"""
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
# Literals in the code that are no variables.
NO_VARIABLES = {"GPUCKPT_FACTS"}  # a place holder of report.html


def variables_in_code():
    found = set()
    for folder in ("src", "tools", "python"):
        for path in (SOURCE / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".c", ".py") and "tests" not in path.parts:
                found |= set(re.findall(r'"(GPUCKPT_[A-Z_]+)=?"', path.read_text()))
    return found - NO_VARIABLES


def first_columns(page):
    """The code words of the first column of all tables."""
    for line in (SOURCE / page).read_text().splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`([^`]+)`", line.split("|")[1])


def check_variables(problems):
    page = "docs/user/environment.md"
    code, listed = variables_in_code(), set(first_columns(page))
    problems += [f"{page} does not have {name}, which the code reads" for name in sorted(code - listed)]
    problems += [f"{page} has {name}, which nothing reads" for name in sorted(listed - code)]


def check_exit_codes(problems):
    page = "docs/user/exit-codes.md"
    code = set(re.findall(r"(kExit\w+) = (\d+)", (SOURCE / "include/gpuckpt/exit_codes.h").read_text()))
    listed = {(name, number) for number, name in re.findall(r"(?m)^\| (\d+) \| `(kExit\w+)` \|", (SOURCE / page).read_text())}
    problems += [f"{page} does not have {name} = {number}" for name, number in sorted(code - listed)]
    problems += [f"{page} has {name} = {number}, which exit_codes.h does not" for name, number in sorted(listed - code)]
    if not code:
        problems.append("exit_codes.h has no exit codes")


def check_messages(problems):
    page = "docs/user/troubleshooting.md"
    text = "".join(re.sub(r'"\s*(PRI\w+\s*)?"', "", path.read_text()) for folder in ("src", "tools") for path in (SOURCE / folder).rglob("*")
                   if path.suffix in (".cc", ".h"))
    for message in first_columns(page):
        for part in re.split(r"\.\.\.", message):
            if part.strip() not in text:
                problems.append(f"{page}: nothing says {part.strip()!r} any more")


def check_named_files(problems):
    page = "CONTRIBUTING.md"
    for name in re.findall(r"`((?:src|tests|docs|simgpu|tools|scripts|include|examples|bench|changelog)/[\w./-]+)", (SOURCE / page).read_text()):
        if not (SOURCE / name).exists():
            problems.append(f"{page} names {name}, which does not exist")
    for name in re.findall(r": (\S+\.md)$", (SOURCE / "mkdocs.yml").read_text(), re.M):
        if not (SOURCE / name).exists():
            problems.append(f"mkdocs.yml names {name}, which does not exist")


def check_version(problems):
    project = re.search(r"project\(gpuckpt VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())
    package = re.search(r'(?m)^version = "([\d.]+)"', (SOURCE / "python/pyproject.toml").read_text())
    if not project or not package or project[1] != package[1]:
        problems.append(f"CMakeLists.txt has version {project and project[1]}, python/pyproject.toml {package and package[1]}")


def without_code(text):
    text = re.sub(r"(?ms)^( *)```.*?^\1```$", "", text)
    return re.sub(r"`[^`\n]*`", "", text)


def anchor(heading):
    """As GitHub makes it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors(path):
    text = re.sub(r"(?ms)^( *)```.*?^\1```$", "", path.read_text())
    found = {anchor(heading) for heading in re.findall(r"(?m)^#+ (.*)$", text)}
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def check_links(problems):
    listed = subprocess.run(["git", "-C", SOURCE, "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard", "*.md"],
                            capture_output=True, text=True)
    pages = [SOURCE / name for name in listed.stdout.split("\0") if name]
    if not pages:  # no checkout: an archive
        pages = [p for p in SOURCE.rglob("*.md") if not {".deps", ".venv"} & set(p.parts)]
    count = 0
    for page in filter(Path.exists, pages):
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            name, _, part = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if not path.exists():
                problems.append(f"{page.relative_to(SOURCE)}: {target} leads to nothing")
            elif part and path.suffix == ".md" and part not in anchors(path):
                problems.append(f"{page.relative_to(SOURCE)}: {target} leads to no heading of {name or page.name}")
    return len(pages), count


def main():
    problems = []
    check_variables(problems)
    check_exit_codes(problems)
    check_messages(problems)
    check_named_files(problems)
    check_version(problems)
    pages, links = check_links(problems)
    print("\n".join(problems) or f"{links} links of {pages} pages lead somewhere; variables, exit codes and messages are those of the code")
    return 1 if problems or not links else 0


if __name__ == "__main__":
    sys.exit(main())
