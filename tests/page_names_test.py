#!/usr/bin/env python3
"""What the pages name in code is there: page_names_test.py BUILD_DIR

Fear: a reader copies an option that was renamed, or searches for a function that no longer exists. In the code spans and code
blocks of all pages

- each `gpuckpt VERB ... --option` has a verb of the command line, with an option that its help shows; so does each
  `--option` that stands alone for one verb at least;
- each identifier with an underscore, or in kCamel or camelCase, occurs in the sources (spans only: a block may have names of its own);
- where a page says that `name` is in `path`, it is in that file, or in a file of that folder."""
import re
import subprocess
import sys
from pathlib import Path

from tracked import ROOT, tracked

HISTORY = ("changelog/", "CHANGELOG.md", "bench/results/")
# Other programs', the kernel's, or made up to explain something.
OTHERS_OPTIONS = {"--only", "--pack", "--open-mode", "--grace-period", "--force"}
OTHERS_NAMES = {"__WNOTHREAD", "shm_cpid", "shm_lpid", "SO_ATTACH_REUSEPORT_", "inspect_sass", "_compile_kernel",
                "terminationGracePeriodSeconds", "cuCheckpoint"}
OTHERS_PAGES = {"docs/user/compatibility.md"}  # names the tests of other projects
MADE_UP = re.compile(r"Foo|NAME")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
COMMAND = re.compile(r"(?:^\s*|\$ |\$\(|&& |; )gpuckpt ([a-z]+)([^|;&#]*)")
IDENTIFIER = re.compile(r"(?<![\w./$-])([A-Za-z_]\w*_\w+|k[A-Z]\w+|[a-z]+[A-Z]\w+)(?![\w.]*/)")
IN_PATH = re.compile(r"((?:`\w+`(?:, | and ))*`\w+`) in `((?:src|simgpu|tools|tests|include)/[\w./-]+)`")


def code_of(page):
    """(line, code, whether it is a span) of the spans and of the blocks' lines of a page."""
    block = False
    for number, line in enumerate(page.split("\n"), 1):
        if line.lstrip().startswith("```"):
            block = not block
        elif block:
            yield number, line, False
        else:
            yield from ((number, span, True) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", line))


class Verbs:
    """The options of each verb, as its help has them."""

    def __init__(self, program):
        self.program, self.known = program, {}
        text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
        for verb in re.findall(r"(?m)^\s+([a-z]+)\s", text):
            self.options(verb)

    def options(self, verb):
        """None: there is no such verb."""
        if verb not in self.known:
            done = subprocess.run([self.program, verb, "--help"], capture_output=True, text=True)
            self.known[verb] = set(OPTION.findall(done.stdout)) if done.returncode == 0 else None
        return self.known[verb]

    def anywhere(self):
        return set().union(*(options for options in self.known.values() if options))


def wrong_options(code, verbs):
    for found in COMMAND.finditer(code):
        verb, arguments = found[1], found[2].split(" -- ")[0]
        options = verbs.options(verb)
        if options is None:
            yield f"there is no verb {verb}"
            continue
        yield from (f"gpuckpt {verb} has no {option}" for option in OPTION.findall(arguments) if option not in options)
    if code.startswith("--"):
        option = OPTION.match(code)
        if option and option[0] not in verbs.anywhere() | OTHERS_OPTIONS:
            yield f"no verb has {option[0]}"


def holds(path, name, texts):
    return any(re.search(rf"\b{name}\b", text) for file, text in texts.items()
               if file == path or file.startswith(path.rstrip("/") + "/"))


def main():
    verbs = Verbs(Path(sys.argv[1]) / "bin/gpuckpt")
    files = tracked()
    texts = {f: (ROOT / f).read_text(errors="replace") for f in files if not f.startswith(HISTORY)}
    words = {word for f, text in texts.items() if not f.endswith(".md") and f != "tests/page_names_test.py"
             for word in re.findall(r"\w+", text)}
    problems, commands, names, places = [], 0, 0, 0
    for file, page in texts.items():
        if not file.endswith(".md"):
            continue
        for number, code, span in code_of(page):
            commands += len(COMMAND.findall(code))
            problems += [f"{file}:{number}: {wrong}" for wrong in wrong_options(code, verbs)]
            if not span or file in OTHERS_PAGES:
                continue
            for name in IDENTIFIER.findall(code):
                names += 1
                if name not in words | OTHERS_NAMES and not MADE_UP.search(name):
                    problems.append(f"{file}:{number}: {name} is not in the code")
        for number, line in enumerate(page.split("\n"), 1):
            for found, path in IN_PATH.findall(line):
                for name in re.findall(r"\w+", found.replace(" and ", " ")):
                    places += 1
                    if not MADE_UP.search(name) and not holds(path, name, texts):
                        problems.append(f"{file}:{number}: {name} is not in {path}")
    print("\n".join(problems) or f"{commands} commands, {names} names and {places} places in the pages are those of the code")
    return 1 if problems or not (commands and names and places) else 0


if __name__ == "__main__":
    sys.exit(main())
