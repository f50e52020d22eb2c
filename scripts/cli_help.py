"""Reads `gpuckpt --help` and `gpuckpt VERB --help`: the one source of the man pages and the shell completions.

Whatever a line of the help says that is not understood here is an error, not left out.
"""
import re
import subprocess
from dataclasses import dataclass, field

DESCRIPTION_COLUMN = 30  # where CLI11 puts the descriptions of positionals and options
QUALIFIER = re.compile(r"\s*\(Env:(?P<env>[A-Z0-9_]+)\)|\s+(?P<rule>Excludes|Needs): (?P<others>-\S+(?: -\S+)*)")


@dataclass
class Entry:
    """A positional or an option. `kind` is what the help calls its value: TEXT, INT:PID, TEXT:{a,b}; "" is a flag."""
    names: list
    kind: str = ""
    default: str = ""
    env: str = ""
    required: bool = False
    repeated: bool = False
    optional_value: str = ""  # --name{value}: `--name` alone means this value, `--name=VALUE` another one
    rules: list = field(default_factory=list)
    text: str = ""

    @property
    def choices(self):
        match = re.search(r"\{(.*)\}", self.kind)
        return match.group(1).split(",") if match else []

    @property
    def value_name(self):
        """The word that stands for the value in a synopsis."""
        if self.choices:
            return "|".join(self.choices)
        word = self.kind.split(":")[-1].split(" ")[0]
        return {"TEXT": "VALUE", "UINT": "N", "INT": "N", "POSITIVE": "N", "DUR": "DURATION"}.get(word, word)


@dataclass
class Verb:
    name: str
    summary: str
    usage: str = ""
    positionals: list = field(default_factory=list)
    options: list = field(default_factory=list)
    footer: list = field(default_factory=list)
    exit_codes: list = field(default_factory=list)  # (number, meaning)


def parse_entry(head, text):
    entry = Entry(names=[], text=text)
    for match in QUALIFIER.finditer(head):
        if match["env"]:
            entry.env = match["env"]
        else:
            entry.rules.append((match["rule"], match["others"]))
    head = QUALIFIER.sub("", head)
    if head.endswith(" ..."):
        entry.repeated, head = True, head[:-4]
    if head.endswith(" REQUIRED"):
        entry.required, head = True, head[:-9]
    names, _, kind = head.partition(" ")
    if match := re.fullmatch(r"(.*)\{(.*)\}", names):
        names, entry.optional_value = match.groups()
    if match := re.fullmatch(r"(.+)(?<! in) \[(.*)\]", kind):  # of CLI11 from 2.4 on
        kind, entry.default = match.groups()
    elif "=" in kind:
        kind, entry.default = kind.split("=", 1)
    if kind and not re.fullmatch(r"(TEXT|INT|UINT)(:(\{\S+\}|[A-Z]+( in \[.*\])?))?", kind):
        raise ValueError(f"cannot read the value of {head!r}: {kind!r}")
    entry.names, entry.kind = names.split(","), kind
    return entry


def is_whole(head):
    """False: the column of descriptions cuts this head in the middle."""
    return all(head.count(a) == head.count(b) for a, b in ("[]", "{}", "()")) and not head.rstrip().endswith(":")


def parse_entries(lines):
    entries = []  # [head, text]
    for line in lines:
        if line.startswith("  ") and line[2] != " ":
            head, text = line[2:], ""
            # The description begins at its column, or on the next line where the head is longer.
            short = line[2:DESCRIPTION_COLUMN]
            long = line[DESCRIPTION_COLUMN:].lstrip().startswith("(Env:")  # two spaces in the middle of the head
            if len(line) > DESCRIPTION_COLUMN and short.endswith(" ") and is_whole(short) and not long:
                head, text = short.rstrip(), line[DESCRIPTION_COLUMN:]
            entries.append([head, text])
        elif line.startswith(" " * DESCRIPTION_COLUMN) and entries:
            entries[-1][1] += (" " if entries[-1][1] else "") + line.strip()
        else:
            raise ValueError(f"cannot read the help's line {line!r}")
    return entries


def sections(text):
    """The help's paragraphs: {"": [...], "Options": [...], "footer": [...]}."""
    found, name = {"": []}, ""
    for line in text.splitlines():
        if line in ("Positionals:", "Options:", "Subcommands:"):
            name = line[:-1]
            found[name] = []
        elif not line and name in ("Options", "Subcommands", "Positionals"):
            name = "footer"
            found.setdefault(name, [])
        else:
            found[name].append(line)
    return found


def parse_verb(name, text):
    parts = sections(text)
    summary, usage = parts[""][:2]
    if not usage.startswith("Usage: "):
        raise ValueError(f"no usage in the help of {name}: {usage!r}")
    verb = Verb(name, summary, usage[len("Usage: "):])
    verb.positionals = [parse_entry(*e) for e in parse_entries(parts.get("Positionals", []))]
    verb.options = [parse_entry(*e) for e in parse_entries(parts["Options"])]
    footer = [line for line in parts.get("footer", []) if line]
    at = footer.index("Exit codes:") if "Exit codes:" in footer else len(footer)
    for line in footer[:at]:
        if line.startswith("Usage: "):
            verb.usage = line[len("Usage: "):]
        else:
            verb.footer.append(line)
    verb.exit_codes = [re.fullmatch(r"  (\d+) +(.*)", line).groups() for line in footer[at + 1:]]
    return verb


def ask(gpuckpt, *arguments):
    # The variables of the caller would show as defaults.
    done = subprocess.run([gpuckpt, *arguments], env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, cwd="/", capture_output=True,
                          text=True)
    if done.returncode:
        raise RuntimeError(f"{gpuckpt} {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def read_help(gpuckpt):
    """(version, summary of the command, what stands below the list of verbs, [Verb])"""
    parts = sections(ask(gpuckpt, "--help"))
    verbs = [parse_verb(name, ask(gpuckpt, name, "--help")) for name, _ in parse_entries(parts["Subcommands"])]
    return ask(gpuckpt, "--version").split()[-1], parts[""][0], " ".join(filter(None, parts["footer"])), verbs
