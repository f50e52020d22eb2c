#!/usr/bin/env python3
"""Everything that /proc tells of a process, to be compared before a snapshot and after a restore: readback.py PID

state_of(pid) reads it; differences(before, after) says what is not as it was, but for what may differ in any two runs
(IGNORED). Only root sees all of it. Members of the comparison are named by their file and field, threads by the
number they know themselves by.
"""
import os
import re
import sys
import time

# Counters, sizes that depend on the moment, and numbers as another namespace sees them.
STATUS_IGNORED = {
    "Pid", "Tgid", "PPid", "NStgid", "NSpid", "NSpgid", "NSsid", "Ngid", "TracerPid", "FDSize", "State", "Threads",
    "VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem", "VmData", "VmStk", "VmExe", "VmLib", "VmPTE",
    "VmSwap", "HugetlbPages", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "Mems_allowed", "Mems_allowed_list",
    "SigQ", "untag_mask", "x86_Thread_features", "x86_Thread_features_locked",
}
FDINFO_IGNORED = {"mnt_id", "ino", "Pid", "NSpid", "it_value", "eventfd-id"}
# /proc/PID/stat from field 3 on: what a program can set, or has set for it.
STAT_FIELDS = {"exit_signal": 38, "priority": 18, "nice": 19, "rt_priority": 40, "policy": 41, "startcode": 26, "endcode": 27,
               "startstack": 28, "start_data": 45, "end_data": 46, "start_brk": 47, "arg_start": 48, "arg_end": 49,
               "env_start": 50, "env_end": 51}
WHOLE_FILES = ["limits", "coredump_filter", "oom_score_adj", "timerslack_ns", "personality", "comm", "cmdline", "environ", "auxv",
               "loginuid", "sessionid", "cgroup", "uid_map", "gid_map", "setgroups", "projid_map", "attr/current"]
LINKS = ["cwd", "root", "exe"]


LIBRARY = range(0x600000000000, 0x680000000000)  # where it puts its own memory


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError as error:
        return f"<{error.strerror}>"


def link(path):
    try:
        return os.readlink(path)
    except OSError as error:
        return f"<{error.strerror}>"


def fields(text, ignored):
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name not in ignored:
            yield name, " ".join(value.split())


def own_number(status):
    match = re.search(r"^NSpid:.*?(\d+)$", status, re.M)
    return match.group(1) if match else "?"


def stat_fields(text):
    rest = text.rpartition(")")[2].split()
    fields = {name: rest[at - 3] for name, at in STAT_FIELDS.items() if at - 3 < len(rest)}
    if len(rest) > 4:
        fields["has a terminal"] = str(rest[4] != "0")  # its number may be another one
    return fields


# What the numbers of anonymous objects are is the kernel's business. A file without a name comes back under another one.
def object_name(target):
    if target.startswith("/") and target.endswith(" (deleted)"):
        return "a file without a name"
    return re.sub(r":\[\d+\]$", ":[]", target)


def threads(root):
    for task in sorted(os.listdir(f"{root}/task"), key=int):
        status = read(f"{root}/task/{task}/status")
        if "NSpid" not in status:  # it has ended
            continue
        who = f"thread {own_number(status)}"
        for name, value in fields(status, STATUS_IGNORED):
            yield f"{who} status {name}", value
        for name, value in stat_fields(read(f"{root}/task/{task}/stat")).items():
            yield f"{who} stat {name}", value
        yield f"{who} timerslack_ns", read(f"/proc/{task}/timerslack_ns").strip()
        yield f"{who} comm", read(f"{root}/task/{task}/comm").strip()


def descriptors(root):
    for fd in sorted(os.listdir(f"{root}/fd"), key=int):
        target = link(f"{root}/fd/{fd}")
        if target == "anon_inode:[userfaultfd]":  # the library's: a snapshot with one of the program's own is refused
            continue
        yield f"fd {fd}", object_name(target)
        try:
            st = os.stat(f"{root}/fd/{fd}")
            yield f"fd {fd} owner and mode", f"{st.st_uid}:{st.st_gid} {st.st_mode:o}"
            yield f"fd {fd} links", str(st.st_nlink)
        except OSError:
            pass
        numbered = {}
        for name, value in fields(read(f"{root}/fdinfo/{fd}"), FDINFO_IGNORED):
            if name == "pos" and fd in ("1", "2"):  # another file, to which restore and program write
                continue
            if name == "lock":  # of an inode
                value = re.sub(r" [0-9a-f]+:[0-9a-f]+:\d+ ", " ", value)
                # A whole description's lock has the number of whichever of its processes took it.
                value = re.sub(r"(FLOCK .*(?:READ|WRITE)) \d+", r"\1", value)
                value = re.sub(r"(POSIX .*(?:READ|WRITE)) (\d+)", lambda m: f"{m[1]} {own_number(read(f'/proc/{m[2]}/status'))}", value)
            value = re.sub(r"\b(ino|sdev|fhandle-bytes|fhandle-type|f_handle):\S+", r"\1:", value)
            numbered.setdefault(name, []).append(value)
        for name, values in numbered.items():
            yield f"fd {fd} fdinfo {name}", " / ".join(sorted(values))


MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \d+ *(.*)$")


# Neighbours that differ in nothing are one mapping: whether the kernel merges them says nothing.
def mappings(root):
    runs = []
    current = None
    for line in read(f"{root}/smaps").splitlines():
        if match := MAPPING.match(line):
            start, end, prot, offset, name = match.groups()
            current = {"start": int(start, 16), "end": int(end, 16), "prot": prot, "offset": int(offset, 16), "name": name, "flags": ""}
            runs.append(current)
        elif current and line.startswith("VmFlags:"):
            current["flags"] = " ".join(f for f in line.split()[1:] if f not in ("sd", "uw", "um", "ac"))
        elif current and line.startswith("Locked:"):
            current["locked"] = line.split()[1] != "0"
    merged = []
    for run in runs:
        last = merged[-1] if merged else None
        if last and last["end"] == run["start"] and all(last[k] == run[k] for k in ("prot", "name", "flags")) and \
                (not run["name"].startswith("/") or last["offset"] + last["end"] - last["start"] == run["offset"]):
            last["end"] = run["end"]
        else:
            merged.append(dict(run))
    for run in merged:
        if "gpuckpt" in run["name"] or run["name"].startswith("[v") or run["start"] in LIBRARY:
            continue
        offset = f" +{run['offset']:x}" if run["name"].startswith("/") else ""
        yield f"mapping {run['start']:x}-{run['end']:x}", f"{run['prot']} {run['name']}{offset} [{run['flags']}]"


def is_stopped(root):
    return "State:\tT" in read(f"{root}/status")


# The library's own thread ends soon after a snapshot or a restore. Of a process that is stopped it cannot.
def wait_for_own_thread(root, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not is_stopped(root):
        if not any(read(f"{root}/task/{task}/comm").strip() == "gpuckpt" for task in os.listdir(f"{root}/task")):
            return
        time.sleep(0.005)


def state_of(pid):
    wait_for_own_thread(f"/proc/{pid}")
    root = f"/proc/{pid}"
    state = {name: read(f"{root}/{name}").strip() for name in WHOLE_FILES}
    state |= {name: link(f"{root}/{name}") for name in LINKS}
    for part in (threads, descriptors, mappings):
        state |= dict(part(root))
    return state


def members_state(pids):
    """The state of each process of a job, under the number that it knows itself by, and what they are to each other. One that
    ends meanwhile is left out."""
    state, own = {}, {}
    for pid in pids:
        status = read(f"/proc/{pid}/status")
        if "NSpid" in status and "State:\tZ" not in status:
            own[str(pid)] = own_number(status)
    for pid, number in own.items():
        try:
            found = state_of(pid)
        except OSError:
            continue
        status = dict(fields(read(f"/proc/{pid}/status"), ()))
        found["parent"] = own.get(status.get("PPid"), "outside")
        found["group"], found["session"] = (status.get(name, "?").split()[-1] for name in ("NSpgid", "NSsid"))
        state |= {f"process {number} {name}": text for name, text in found.items()}
    return state


# What differs and is told: (programs, difference, why). A pattern that fits nothing any more fails the test, too, but for those whose
# difference is there at some moments only.
MOMENTARY = ("a stopped process is still in the library, which blocks signals", "a child ends every 20 ms")
KNOWN = {
    "features": [
        (r"fd_link_elsewhere|fd_link_lost|fd_mqueue|fd_sparse|fd_unlinked|memory_follows|memory_kinds|memory_odd_sizes", r"fd \d+: '.*' -> '.*'", "a name that is no longer there"),
        (r"fd_mqueue|memory_kinds|memory_odd_sizes", r"fd \d+ fdinfo flags: '.*' -> '.*'", "O_LARGEFILE and O_NOFOLLOW, which do nothing to an open file"),
        (r"ipc_posix|memory_kinds|memory_policy|memory_hugetlb_shared|memory_odd_sizes|memory_sparse", r"mapping \S+: .*/(dev/shm/(gpuckpt-odd-removed-\d+|sem\.\w+)|SYSV\w+|anon_hugepage|memfd:gpuckpt-shared) \(deleted\).*",
         "shared memory that has lost its first owner is a memfd"),
        (r"memory_lock_future", r"mapping .* lo lf\]' -> .*|thread \d+ status VmLck: .*", "memory of the library, of which less is mapped"),
        (r"id_program_removed", r"exe: ", "the program's own file is gone"),
        (r"thread_first_ended", r"thread \d+ status SigBlk: ", "signals that a thread blocked when it ended"),
        (r"shm_second_name", r"mapping \S+: .*/dev/shm/sem\..*", "shared memory has the name that it goes by, not the one that it was made by"),
        (r"fd_read_out", r"fd \d+ fdinfo pos: ", "the end of a text that the kernel writes anew, which is longer"),
    ],
    "trees": [
        (r"log_followed", r"fd 3 fdinfo pos: ", "a log that is written and read all the time"),
        (r"hugetlb_family|python_start_methods|python_subprocesses", r"mapping \S+: .*/(dev/shm/sem\.\w+|anon_hugepage) \(deleted\).*",
         "shared memory that has lost its first owner is a memfd, or has the name that it goes by"),
        (r"shell_jobs", r"thread \d+ status ShdPnd: '0{11}[01]0000' -> '0{11}[01]0000'", "a child ends every 20 ms"),
        (r"terminal_background|terminal_stopped|stopped|stop_unnoticed|shell_jobs", r"thread \d+ status SigBlk: ", "a stopped process is still in the library, which blocks signals"),
    ],
}
# Programs whose threads, mappings or counters change while they wait.
NEVER_STILL = {"thread_churn", "spawn_storm", "tcp_accept_queue", "memory_not_forked", "memory_policy_new", "fd_timerfd", "timer_posix", "supervisor"}
# Programs whose processes end, and start new ones, while they wait: the others are compared.
COME_AND_GO = {"flighty", "shared_short_lived"}


def readings(read_all, rounds=10, pause_s=0.05):
    """Reads the state of a program again and again, by a call without arguments: what changes while it stands (a timer's signal
    that is pending for a moment) is not in each of them."""
    for at in range(rounds):
        if at:
            time.sleep(pause_s)
        yield read_all()


def owner_of(name, come_and_go):
    """The thread that a member of the comparison is of; the process, where processes `come_and_go`. None: neither."""
    match = re.match(r"(process \d+ )?(thread \d+ )?", name)
    return match[1] if come_and_go and match[1] else match[0] if match[2] else None


# Threads that end, and new ones, are the program's business: one that is lost is missed by its program.
def differences(before, after, come_and_go=False):
    known = [{owner_of(name, come_and_go) for name in state} for state in (before, after)]
    for name in sorted(before.keys() | after.keys()):
        owner = owner_of(name, come_and_go)
        if owner and owner not in known[0] & known[1]:
            continue
        was, now = before.get(name), after.get(name)
        if was != now:
            yield f"{name}: {was!r} -> {now!r}"


def reason(folder, program, difference):
    """The index in KNOWN of why it may differ; None: it must not."""
    difference = re.sub(r"^process \d+ ", "", difference)
    for i, (programs, pattern, _) in enumerate(KNOWN[folder]):
        if re.fullmatch(programs, program) and re.match(pattern, difference):
            return i
    return None


if __name__ == "__main__":
    for key, text in state_of(int(sys.argv[1])).items():
        print(f"{key}: {text}")
