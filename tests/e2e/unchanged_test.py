#!/usr/bin/env python3
"""Programs that a preload easily breaks do exactly what they do without it: unchanged_test.py BUILD_DIR."""
import subprocess
import sys

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


def main():
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    programs = tools.build / "tests" / "programs"
    cases = {name: [programs / name] for name in (
        "unshare_user", "main_leaves", "no_children", "own_sigusr1", "sigwait_usr1", "close_all", "fork_after_cuda")}
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
        # SIGUSR1 makes a snapshot; a program that wants its default gets it with --signal none.
        done = subprocess.run([tools.gpuckpt, "run", "--sim", "--store", session.store, "--signal", "none", "--",
                               programs / "default_usr1"], cwd=session.work, env=session.environment(),
                              capture_output=True, text=True, timeout=60)
        if done.returncode != -10 or done.stdout != "before\n":
            print(f"FAILED --signal none: {done}")
            failures += 1
    print("all unchanged" if not failures else f"{failures} programs changed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
