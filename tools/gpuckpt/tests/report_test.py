#!/usr/bin/env python3
"""What the page of `gpuckpt report` says is what the other verbs say: report_test.py BUILD_DIR"""
import json
import re
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "e2e"))
import harness  # noqa: E402


class Page(HTMLParser):
    """Its facts, and everything it would load from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.facts, self.inside = [], "", False
        self.loads += re.findall(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)[^\"' ]*", re.sub(r"<script type=.*?</script>", "", text, flags=re.S))
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.loads += [f"{tag} {k}={v}" for k, v in attributes if k in ("src", "href", "srcset", "data", "action")]
        self.inside = ("id", "report-facts") in attributes

    def handle_data(self, data):
        if self.inside:
            self.facts += data

    def handle_endtag(self, tag):
        self.inside = False


def same(what, a, b):
    if a != b:
        raise harness.Failure(f"{what}: {a!r} is not {b!r}")


def report(session, *arguments, check=True):
    done = session.cli("report", *arguments, check=check)
    page = Page(done.stdout)
    same("loaded from elsewhere", page.loads, [])
    return json.loads(page.facts)


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]), sim=False)
    with harness.Session(tools) as session:
        process = session.run(tools.subject("counter", 400, 15), options=["--job", "</script><b>&"])
        session.wait_lines(2, process)
        for tag in ("first", "a <b> & \"c\"", "third"):
            session.cli("checkpoint", process.pid, "--tag", tag)
        session.kill(process)
        listed = session.snapshots()
        facts = report(session, session.store)
        same("snapshots", [s["id"] for s in facts["snapshots"]], [s["id"] for s in listed])
        for shown, known in zip(facts["snapshots"], listed):
            for key in ("time", "tag", "job", "command", "sizes", "stats", "reason"):
                same(f"{key} of {shown['id']}", shown.get(key), known.get(key))
        files = [p for p in session.store.rglob("*") if p.is_file() and p.parent.name in ("packs", "layers", "snapshots")]
        same("bytes on disk", facts["disk_bytes"], sum(p.stat().st_size for p in files))
        same("new bytes", sum(c["plain_bytes"] for c in facts["codecs"]) > 0, True)

        # The memory of a snapshot, by kind: the newest one's, and the one that was asked for.
        for reference, chosen, before in ((session.store, 2, 1), (f"{session.store}@first", 0, None)):
            memory = report(session, reference)["memory"]
            same("chosen", memory["id"], listed[chosen]["id"])
            same("before", memory["before"], listed[before]["id"] if before is not None else "")
            inspected = json.loads(session.cli("inspect", f"{session.store}@{memory['id']}", "--maps", "--json").stdout)
            stored, zero = (sum(s[k] for s in inspected["spaces"]) for k in ("stored", "zero"))
            fresh, shared, nothing = memory["share"]
            same("stored", fresh + shared, stored)
            same("zero", nothing, zero)
            cells = memory["map"]["cells"]
            same("cells", [sum(c[k] for c in cells) for k in range(3)], memory["share"])
            host = [sum(m["share"][k] for m in memory["mappings"]) for k in range(3)]
            same("mappings", host, memory["share"])
            same("sizes", sum(m["size"] for m in memory["mappings"]), sum(m["size"] for m in inspected["maps"]))
        if not facts["memory"]["share"][1]:
            raise harness.Failure(f"the newest snapshot shares nothing: {facts['memory']['share']}")

        session.cli("report", session.store, "--output", session.work / "page.html")
        same("the file", "<title>gpuckpt report</title>" in (session.work / "page.html").read_text(), True)
        same("no store", session.cli("report", session.work / "nothing", check=False).returncode, 10)
        same("no snapshot", session.cli("report", f"{session.store}@nothing", check=False).returncode, 10)
    print("the page agrees")


if __name__ == "__main__":
    main()
