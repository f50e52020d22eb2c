#!/usr/bin/env python3
"""The commands of the checkout that the pages give can be typed: page_commands_test.py BUILD_DIR

Fear: a page tells a contributor to run a script that was renamed, with an option that is gone, or tests that no pattern finds.
These commands take minutes or hardware, so that docs_test.py does not run them. In the code spans and code blocks of all pages

- `./NAME` and a path below scripts, tests, bench is an executable file, and its source, or one beside it, has each `--option`
  and each part of `--only A,B`;
- `ctest -R NAME` and `ctest -L LABEL` find a test of the build;
- `ninja -C DIR TARGET...` names targets of the build;
- `cmake --preset NAME` names a preset; `-DNAME=` is an option of the project;
- `pip install NAME==VERSION` has the version that the simulated GPU's package for PyTorch is tested with."""
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from page_names_test import HISTORY, OPTION, code_of
from tracked import ROOT, tracked

OURS = re.compile(r"(?:\./\w+|(?:scripts|tests|bench)/[\w./-]+)(?= |$)")


def words_of(code):
    """The words of a command, without its prompt and its comment."""
    try:
        return shlex.split(re.sub(r"^\s*(\$ )?", "", code), comments=True)
    except ValueError:  # half of a command that takes several lines
        return []


class Build:
    def __init__(self, folder):
        shown = subprocess.run(["ctest", "--test-dir", str(folder), "--show-only=json-v1"], capture_output=True, text=True, check=True)
        self.tests, self.labels = [], set()
        for test in json.loads(shown.stdout)["tests"]:
            self.tests.append(test["name"])
            for entry in test.get("properties", []):
                if entry["name"] == "LABELS":
                    self.labels.update(entry["value"])
        rules = (folder / "build.ninja").read_text()
        self.targets = set(re.findall(r"(?m)^build ([\w./-]+): phony", rules))
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        self.presets = {preset["name"] for preset in presets["configurePresets"]}
        self.cmake = "\n".join((ROOT / f).read_text() for f in tracked() if f.endswith(("CMakeLists.txt", ".cmake")))


def after(words, option):
    """What follows each `option`."""
    return [words[i + 1] for i, word in enumerate(words[:-1]) if word == option]


def wrong_script(words):
    path = ROOT / words[0]
    if not path.is_file() or not os.access(path, os.X_OK):
        yield f"{words[0]} is no program of the checkout"
        return
    beside = [path, *(ROOT / f for f in tracked(str(path.parent.relative_to(ROOT))) if f.endswith(".py"))]
    text = "\n".join(file.read_text(errors="replace") for file in beside)
    for word in words[1:]:
        option = OPTION.match(word.strip("[]"))
        if option and option[0] not in text:
            yield f"{words[0]} has no {option[0]}"
    for listed in after(words, "--only"):
        yield from (f"{words[0]} has no part {part}" for part in listed.split(",") if not re.search(rf"\b{part}\b", text))


def wrong_ctest(words, build):
    for pattern in after(words, "-R"):
        if not any(re.search(pattern, name) for name in build.tests):
            yield f"no test is found by -R {pattern}"
    for pattern in after(words, "-L"):
        if not any(re.search(pattern, label) for label in build.labels):
            yield f"no test has a label {pattern}"


def wrong_versions(words):
    tested = dict(re.findall(r'"([\w-]+)": "([\d.]+)"', (ROOT / "python/sim/gpuckpt_sim_torch/__init__.py").read_text()))
    for word in words:
        name, _, version = word.partition("==")
        if version and tested.get(name, version) != version:
            yield f"{name} is tested with {tested[name]}"


def is_ours(words):
    return bool(OURS.fullmatch(words[0])) or words[0] in ("ctest", "ninja", "cmake") or words[0].split("/")[-1] == "pip"


def wrong(words, build):
    if OURS.fullmatch(words[0]):
        yield from wrong_script(words)
    if words[0] == "ctest":
        yield from wrong_ctest(words, build)
    if words[0] == "ninja":
        named = words[words.index("-C") + 2:] if "-C" in words else words[1:]
        yield from (f"there is no target {target}" for target in named if target not in build.targets)
    if words[0] == "cmake":
        yield from (f"there is no preset {name}" for name in after(words, "--preset") if name not in build.presets)
    if words[0] in ("cmake", "scripts/build"):
        for word in words:
            name = re.match(r"-D(\w+)=", word)
            if name and name[1] not in build.cmake:
                yield f"{name[1]} is no option of the project"
    if words[0].endswith("pip"):
        yield from wrong_versions(words)


def main():
    build = Build(Path(sys.argv[1]))
    problems, commands = [], 0
    for file in tracked():
        if not file.endswith(".md") or file.startswith(HISTORY):
            continue
        for number, code, span in code_of((ROOT / file).read_text()):
            words = words_of(code)
            # A path alone in a span is a place, not a command.
            if not words or (span and len(words) == 1 and not words[0].startswith("./")):
                continue
            if is_ours(words):
                commands += 1
                problems += [f"{file}:{number}: {what}" for what in wrong(words, build)]
    print("\n".join(problems) or f"{commands} commands of the pages can be typed")
    return 1 if problems or commands < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
