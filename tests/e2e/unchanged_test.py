#!/usr/bin/env python3
"""Programs that a preload easily breaks do exactly what they do without it, and after a snapshot and a restore as well:
unchanged_test.py BUILD_DIR."""
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import harness


def both(tools, session, command, **options):
    """(status, stdout, stderr) of a program without gpuckpt and with it, its driver being the simulated one in both."""
    results = []
    for prefix, library in (([], str(tools.build / "lib" / "simgpu")),
                            ([str(tools.gpuckpt), "run", "--sim", "--store", str(session.store), "--"], None)):
        env = session.environment(**({"LD_LIBRARY_PATH": library} if library else {}))
        done = subprocess.run([*prefix, *map(str, command)], cwd=session.work, env=env, capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL, **options)
        results.append((done.returncode, done.stdout, done.stderr))
    return results


PROGRAMS = ("unshare_user", "main_leaves", "no_children", "own_sigusr1", "sigwait_usr1", "close_all", "fork_after_cuda")


def over_a_snapshot(tools, name):
    """Snapshot where the program waits; it goes on unchanged, and so does the restored one. Returns what is wrong."""
    command = [tools.build / "tests" / "programs" / name, 1500]
    expected, status = harness.reference(tools, command)
    with harness.Session(tools, 1) as session:
        process = session.run(command)
        session.wait_lines(expected.index("waiting") + 1, process)
        snapshot = session.snapshot(process, "cli")
        for way in ("went on", "restored"):
            ended = session.finish(process, 30)
            if ended != status:
                raise harness.Failure(f"{way}: status {ended}, not {status}: {session.errors('out')}")
            session.compare(expected)
            if way == "went on":
                process = session.restore(snapshot)


def over_a_pipe(tools):
    """prog | cat: a snapshot changes nothing for the reader; the restored program writes to the new one's standard output."""
    command = tools.subject("counter", 60, 25)
    expected, _ = harness.reference(tools, command)
    with harness.Session(tools, 1) as session:
        with open(session.work / "out", "wb") as out:
            process = subprocess.Popen([str(c) for c in (tools.gpuckpt, "run", "--sim", "--store", session.store, "--", *command)],
                                       stdout=subprocess.PIPE, cwd=session.work, env=session.environment())
            cat = subprocess.Popen(["cat"], stdin=process.stdout, stdout=out)
            process.stdout.close()
            session.wait_lines(5, process)
            snapshot = session.snapshot(process, "cli")
            if (process.wait(30), cat.wait(30)) != (0, 0):
                raise harness.Failure(f"{process.returncode} | {cat.returncode}")
        session.compare(expected)
        restored = session.restore(snapshot, out="rest")
        if session.finish(restored, 30) != 0:
            raise harness.Failure(f"restored: {restored.returncode}: {session.errors('rest')}")
        rest = session.lines("rest")
        if not rest or rest != expected[-len(rest):] or len(rest) > len(expected) - 5:
            raise harness.Failure(f"restored, it wrote {rest[:2]}..{rest[-1:]}")


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    programs = tools.build / "tests" / "programs"
    cases = {name: [programs / name] for name in PROGRAMS}
    cases |= {
        "ls": ["/bin/ls", "-l", "/etc"],
        "cat in a pipe": ["/bin/sh", "-c", "yes | head -n 20000 | cat | wc -c"],
        "a pipe that breaks": ["/bin/bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[@]}"],
        "python": ["/usr/bin/python3", "-c", "import threading, json, hashlib; print(hashlib.sha256(b'x').hexdigest())"],
        "subprocesses": ["/usr/bin/python3", "-c", "import subprocess as s; print(s.run(['/bin/echo', 'hi'], "
                                                   "capture_output=True).stdout)"],
        "exit status": ["/bin/sh", "-c", "exit 7"],
        "killed by a signal": ["/bin/sh", "-c", "kill -TERM $$"],
        "a missing file": ["/bin/cat", "/does/not/exist"],
    }
    failures = 0
    with harness.Session(tools, 1) as session:
        for name, command in cases.items():
            try:
                without, under = both(tools, session, command)
            except subprocess.TimeoutExpired as late:
                print(f"FAILED {name}: not ended after 60 s: {late.cmd[:2]}")
                failures += 1
                continue
            works = without[0] == 0 or not str(command[0]).startswith(str(programs))
            if without == under and works:
                print(f"ok {name}")
            else:
                print(f"FAILED {name}:\n  without: {without}\n  under:   {under}")
                failures += 1
        # SIGUSR1 makes a snapshot, but what a program sends itself has its default.
        for options in ((), ("--signal", "none")):
            done = subprocess.run([tools.gpuckpt, "run", "--sim", "--store", session.store, *options, "--",
                                   programs / "default_usr1"], cwd=session.work, env=session.environment(),
                                  capture_output=True, text=True, timeout=60)
            if done.returncode != -10 or done.stdout != "before\n":
                print(f"FAILED default_usr1 {options}: {done}")
                failures += 1
    def snapshot_case(name):
        try:
            over_a_pipe(tools) if name == "prog | cat" else over_a_snapshot(tools, name)
            return f"ok {name} over a snapshot"
        except harness.Failure as failure:
            return f"FAILED {name} over a snapshot: {failure}"

    with ThreadPoolExecutor(3) as pool:  # they wait most of the time
        for line in pool.map(snapshot_case, [*PROGRAMS, "prog | cat"]):
            print(line, flush=True)
            failures += line.startswith("FAILED")
    print("all unchanged" if not failures else f"{failures} programs changed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
