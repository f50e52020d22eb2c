#!/usr/bin/env python3
"""inspect must show where the threads of a stored process were, without restoring it: C++ and Python functions by name.

inspect_test.py BUILD_DIR
"""
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "e2e"))
import harness

PYTHON = '''
import threading, time

def inner(seconds):
    while True:
        time.sleep(seconds)       # line 6

class Worker:
    def run(self):
        inner(0.02)               # line 10

threading.Thread(target=Worker().run, daemon=True).start()
print("ready", flush=True)
inner(0.03)                       # line 14
'''


def expect(condition, what):
    if not condition:
        raise harness.Failure(what)


def snapshot(session, command):
    process = session.popen([session.tools.gpuckpt, "run", "--store", session.store, "--", *command], session.work / "out")
    session.wait_lines(1, process)
    ident = session.cli("checkpoint", process.pid).stdout.strip()
    session.kill(process)
    (session.work / "out").unlink()
    return f"{session.store}@{ident}"


def threads(session, reference):
    done = session.cli("inspect", reference, "--threads", "--json")
    return json.loads(done.stdout)["threads"], session.cli("inspect", reference, "--threads").stdout


def names(frames):
    return [re.sub(r"\+0x[0-9a-f]+$", "", f["function"]) for f in frames]


def native(session):
    listed, text = threads(session, snapshot(session, [session.tools.build / "tests" / "programs" / "deep_calls"]))
    main = next(t for t in listed if t["main"])
    diver = next(t for t in listed if t["name"] == "diver")
    for thread, depth, last in (main, 4, "main"), (diver, 3, "(anonymous namespace)::work_in_thread(void*)"):
        stack = names(thread["stack"])
        expect(stack.count("(anonymous namespace)::descend(int)") == depth, f"{depth} levels of descend wanted: {stack}")
        expect(stack.count("(anonymous namespace)::sleep_for_ever(int)") == 1, f"no sleep_for_ever: {stack}")
        expect(stack.index("(anonymous namespace)::sleep_for_ever(int)") < stack.index(last), f"{last} is not below: {stack}")
        # The innermost frame is in libc, which must be named although none of its code was stored.
        expect("libc" in thread["stack"][0]["module"], f"not asleep in libc: {thread['stack'][0]}")
    expect("work_in_thread" in text and '"diver"' in text, text)


def python(session, interpreter):
    script = session.work / "script.py"
    script.write_text(PYTHON)
    listed, text = threads(session, snapshot(session, [interpreter, script]))
    main = next(t for t in listed if t["main"])
    found = [(f["function"], f["line"], Path(f["file"]).name) for f in main["python"]]
    expect(found == [("inner", 6, "script.py"), ("<module>", 14, "script.py")], f"{interpreter}: main thread at {found}")
    others = [[(f["function"], f["line"]) for f in t["python"]] for t in listed if not t["main"] and t["python"]]
    expect(len(others) == 1 and others[0][:2] == [("inner", 6), ("Worker.run", 10)], f"{interpreter}: thread at {others}")
    expect("Worker.run" in text and "script.py:10" in text, text)


def understood(interpreter):
    version = subprocess.run([interpreter, "-c", "import sys; print(sys.version_info[:2] in ((3, 11), (3, 12), (3, 13)))"],
                             capture_output=True, text=True)
    return version.stdout.strip() == "True"


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    with harness.Session(tools) as session:
        native(session)
        print("native: ok", flush=True)
    for interpreter in sys.argv[2:] or [sys.executable]:
        if not understood(interpreter):
            print(f"{interpreter}: another Python than 3.11 to 3.13, not tried", flush=True)
            continue
        with harness.Session(tools) as session:
            python(session, interpreter)
            print(f"{interpreter}: ok", flush=True)


main()
