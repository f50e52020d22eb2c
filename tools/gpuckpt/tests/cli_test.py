#!/usr/bin/env python3
"""The command line as scripts see it: exit codes, results on stdout, all else on stderr, clear sentences.

cli_test.py BUILD_DIR [NAME...]
"""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time

build = os.path.abspath(sys.argv[1])
gpuckpt = f"{build}/bin/gpuckpt"
example = f"{build}/tests/store_format_example"
VERBS = ["run", "checkpoint", "restore", "list", "inspect", "verify", "diff", "prune", "repair", "export", "import", "stats",
         "doctor"]


class Failure(Exception):
    pass


def call(*arguments, code=0, says="", env=None, program=gpuckpt, cwd=None, timeout=60):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GPUCKPT_")}
    environment.update(env or {})
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd,
                          timeout=timeout, stdin=subprocess.DEVNULL)
    what = f"gpuckpt {' '.join(map(str, arguments))}: exit {done.returncode}, stdout {done.stdout[-300:]!r}, stderr {done.stderr[-500:]!r}"
    if done.returncode not in (code if isinstance(code, tuple) else (code,)):
        raise Failure(f"{what}; expected {code}")
    if says not in done.stderr:
        raise Failure(f"{what}; expected {says!r} on stderr")
    if done.returncode not in (0, 3) and "--help" not in arguments and not done.stderr.strip() and program == gpuckpt:
        raise Failure(f"{what}; failed without a word")
    return done


def helps(work):
    top = call("--help").stdout
    for verb in VERBS:
        if f"\n  {verb} " not in top:
            raise Failure(f"{verb} is not in the help")
        text = call(verb, "--help").stdout
        if "Exit codes:" not in text:
            raise Failure(f"{verb} --help does not list its exit codes")
    call("--version")


def usage(work):
    for arguments in ([], ["nonsense"], ["list", "--nonsense"], ["checkpoint"], ["checkpoint", "x"], ["prune", "--keep", "0"],
                      ["prune", "--remove", ""], ["prune", "--tag", ""], ["run", "--every", "soon", "--", "true"], ["run", "--budget", "many", "--", "true"],
                      ["run"], ["inspect"]):
        call(*arguments, code=(2, 125) if arguments == ["run"] else 2)
    call("nonsense", code=2, says='no verb "nonsense"')
    for verb in ("checkpoint", "stats", "suspend", "resume"):
        for pid in ("x", "-1", "0", "1.5", "12345678901"):
            call(verb, pid, code=2, says="is no process id" if pid != "-1" else "")


def absent(work):
    call("list", f"{work}/none", code=10, says="there is no store")
    os.mkdir(f"{work}/empty")
    call("list", f"{work}/empty", code=10, says="not a gpuckpt store")
    call("verify", f"{work}/none", code=10)
    call("inspect", f"{work}/none@x", code=10)
    call("prune", f"{work}/none", "--keep", 1, code=10)
    call("restore", f"{work}/none", "--dry-run", code=10)
    status = f"{work}/status"
    call("restore", f"{work}/none", "--status-file", status, code=125)
    with open(status) as file:
        if json.load(file)["code"] != 10:
            raise Failure("the status file does not have the class")


def unwritable_store(work):
    """The program starts all the same, and its user is told at once that snapshots will fail."""
    os.mkdir(f"{work}/version")
    with open(f"{work}/version/format", "w") as file:
        file.write('{"format":"gpuckpt store","version":99}')
    with open(f"{work}/file", "w"):
        pass
    for store in (f"{work}/version", f"{work}/file", f"{work}/file/deeper", "/proc/store"):
        for options in (["--store", store], ["--store", f"{work}/good", "--mirror", store]):
            call("run", *options, "--", "/bin/true", says="warning: snapshots will fail")
    os.mkdir(f"{work}/empty")
    for store in (f"{work}/new/deep", f"{work}/empty/"):
        done = call("run", "--store", store, "--", "/bin/true")
        if "warning" in done.stderr:
            raise Failure(f"a store that can be made: {done.stderr}")


def another_owner(work):
    if os.getuid() != 0:
        return "not root"
    store = f"{work}/theirs"
    subprocess.run([example, store], check=True)
    for folder, _, files in os.walk(store):
        for name in [folder] + [os.path.join(folder, f) for f in files]:
            os.chown(name, 65534, 65534)
    for verb in ("list", "verify", "prune", "repair"):
        call(verb, store, *(["--keep", 9] if verb == "prune" else []), code=14, says="--any-owner")
    call("list", store, "--any-owner")
    call("verify", store, "--any-owner")
    call("restore", store, "--dry-run", code=14, says="--any-owner")
    return None


def processes(work):
    call("checkpoint", 2 ** 22 - 5, code=10, says="no process")
    other = subprocess.Popen(["/bin/sleep", "30"])
    try:
        call("checkpoint", other.pid, code=10, says="does not run under gpuckpt")
        call("stats", other.pid, code=10)
        if other.poll() is not None:
            raise Failure("checkpoint ended a process that is none of ours")
    finally:
        other.kill()
        other.wait()


def store_verbs(work):
    store = f"{work}/s"
    subprocess.run([example, store], check=True)
    listed = json.loads(call("list", store, "--json").stdout)
    if len(listed) != 3 or [s["job"] for s in listed] != ["demo", "more", "more"]:
        raise Failure(f"list: {listed}")
    if len(call("list", store).stdout.splitlines()) != 4:
        raise Failure("list does not print one line for each snapshot")
    if len(json.loads(call("list", "--json", env={"GPUCKPT_STORE": store}).stdout)) != 3:
        raise Failure("GPUCKPT_STORE is not the twin of the store")
    if len(json.loads(call("list", store, "--job", "demo", "--json").stdout)) != 1:
        raise Failure("--job does not select")
    inspected = json.loads(call("inspect", f"{store}@more", "--json", "--allocations").stdout)
    if inspected["id"] != listed[2]["id"] or not inspected["allocations"]:
        raise Failure(f"inspect: {inspected}")
    call("inspect", f"{store}@{listed[0]['id']}")
    call("inspect", f"{store}@nothing", code=10, says="nothing")
    verified = json.loads(call("verify", store, "--json", says="every byte read").stdout)
    if not verified["ok"] or len(verified["whole"]) != 3:
        raise Failure(f"verify: {verified}")
    call("verify", store, says="Not checked: whether they can be restored on this machine")
    # All bytes are there, and the example's description is none of a process: no restore could use it.
    call("verify", f"{store}@latest", code=13, says="the description of the process is cut short")
    call("verify", store, "--quick")
    changed = json.loads(call("diff", f"{store}@{listed[1]['id']}", f"{store}@{listed[2]['id']}", "--json").stdout)
    if not 0 < changed["changed_bytes"] < 500000:
        raise Failure(f"diff: {changed}")
    same = json.loads(call("diff", f"{store}@more", f"{store}@more", "--json").stdout)
    if same["changed_bytes"] or same["only_first_bytes"] or same["only_second_bytes"]:
        raise Failure(f"diff with itself: {same}")
    call("export", f"{store}@more", "-o", f"{work}/one.snapshot")
    call("import", f"{work}/other", "-i", f"{work}/one.snapshot")
    if json.loads(call("verify", f"{work}/other", "--json").stdout)["whole"] != [listed[2]["id"]]:
        raise Failure("what was imported is not whole")
    with open(f"{work}/one.snapshot", "r+b") as file:
        file.truncate(os.path.getsize(f"{work}/one.snapshot") // 2)
    call("import", f"{work}/third", "-i", f"{work}/one.snapshot", code=13)
    if os.path.exists(f"{work}/third"):
        raise Failure("half a stream left a store")
    os.mkdir(f"{work}/fourth")
    call("import", f"{work}/fourth", "-i", f"{work}/one.snapshot", code=13)
    if os.listdir(f"{work}/fourth"):
        raise Failure("half a stream left a store in a folder of the user")
    before = call("list", f"{work}/other", "--json").stdout
    call("import", f"{work}/other", "-i", f"{work}/one.snapshot", code=13)
    if not json.loads(before) or call("list", f"{work}/other", "--json").stdout != before:
        raise Failure("half a stream changed the snapshots of a store")
    would = json.loads(call("prune", store, "--keep", 1, "--dry-run", "--json").stdout)
    if would["removed"] != [listed[1]["id"]] or len(json.loads(call("list", store, "--json").stdout)) != 3:
        raise Failure(f"prune --dry-run: {would}")
    if call("prune", store, "--keep", 1).stdout.split() != [listed[1]["id"]]:
        raise Failure("prune does not print what it removed")
    call("verify", store)
    pack = max((f"{store}/packs/{n}" for n in os.listdir(f"{store}/packs")), key=os.path.getsize)
    with open(pack, "r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 4]))
    damaged = json.loads(call("verify", store, "--json", code=13).stdout)
    if damaged["ok"] or not damaged["damaged"]:
        raise Failure(f"verify of a damaged store: {damaged}")
    call("repair", store, code=(0, 3))
    call("verify", store)
    if os.getuid() == 0:
        os.chown(store, 12345, 12345)
        call("list", store, code=14, says="belongs to user 12345")
        call("list", store, env={"GPUCKPT_ANY_OWNER": "1"})


def mirror_status(work):
    """What has reached the mirror, what is behind, the last error: for people and for programs."""
    store = f"{work}/s"
    subprocess.run([example, store], check=True)
    call("mirror", store, "--status", code=10, says="never mirrored")
    call("mirror", store, code=2, says="no target")
    if "mirrored" in json.loads(call("list", store, "--json").stdout)[0]:
        raise Failure("list says that a store without a mirror has one")
    call("mirror", store, f"{work}/far")
    call("list", store, says=f"mirror {work}/far: has all (as of 20")
    call("export", f"{store}@more", "-o", f"{work}/one.snapshot")
    ids = [s["id"] for s in json.loads(call("list", store, "--json").stdout)]

    # A younger one, and an older one than what the mirror has.
    call("prune", f"{work}/far", "--keep", 1)
    call("mirror", store, "--status", says="", code=0)  # as of the last time
    os.unlink(f"{store}/snapshots/{ids[1]}.manifest")
    call("mirror", store, f"{work}/far")
    status = json.loads(call("mirror", store, "--status", "--json").stdout)
    if not status["current"] or status["snapshots"] != 2 or status["newest"] != ids[2] or status["behind"] or status["error"]:
        raise Failure(f"mirror --status: {status}")
    shutil.copy(f"{work}/far/snapshots/{ids[2]}.manifest", f"{work}/kept")
    os.unlink(f"{store}/snapshots/{ids[2]}.manifest")
    os.unlink(f"{work}/far/snapshots/{ids[2]}.manifest")
    call("mirror", store, f"{work}/far")
    shutil.copy(f"{work}/kept", f"{store}/snapshots/{ids[2]}.manifest")
    status = json.loads(call("mirror", store, "--status", "--json", code=3).stdout)
    if status["current"] or status["behind"] != [ids[2]]:
        raise Failure(f"mirror --status with one behind: {status}")
    call("list", store, says=f"1 to be copied, the newest it has is {ids[0]}")
    if [s["mirrored"] for s in json.loads(call("list", store, "--json").stdout)] != [True, False]:
        raise Failure("list --json does not tell which one is behind")

    # The mirror cannot be written to.
    os.rename(f"{work}/far", f"{work}/gone")
    with open(f"{work}/far", "w") as file:
        file.write("no directory")
    call("mirror", store, f"{work}/far", code=(1, 10, 14))
    status = json.loads(call("mirror", store, "--status", "--json", code=3).stdout)
    if not status["error"] or status["behind"] != [ids[2]] or status["snapshots"] != 1:
        raise Failure(f"mirror --status after an error: {status}")
    call("list", store, says="; the last time: ")


def run_refuses(work):
    call("run", "--", f"{work}/missing", code=125, says="there is no program")
    call("run", "--", "no-such-program-anywhere", code=125, says="PATH")
    call("run", "--files-in-snapshot", work, "--", "true", code=125, says=f"--files-in-snapshot={work}")
    copy = f"{work}/alone"
    os.makedirs(f"{copy}/bin")
    shutil.copy2(gpuckpt, f"{copy}/bin/gpuckpt")
    call("run", "--", "true", code=125, says="libgpuckpt.so is missing", program=f"{copy}/bin/gpuckpt")
    with open("/bin/true", "rb") as file:
        elf = bytearray(file.read())
    for name, at, value, words in (("bits", 4, 1, "32-bit"), ("machine", 18, 183, "another processor")):
        changed = bytearray(elf)
        changed[at] = value
        path = f"{work}/{name}"
        with open(path, "wb") as file:
            file.write(changed)
        os.chmod(path, 0o755)
        call("run", "--", path, code=125, says=words)
    compiler = shutil.which("cc")
    if compiler:
        with open(f"{work}/s.c", "w") as file:
            file.write("int main(void) { return 0; }\n")
        if subprocess.run([compiler, "-static", "-o", f"{work}/static", f"{work}/s.c"], capture_output=True).returncode == 0:
            status = f"{work}/status"
            call("run", "--status-file", status, "--", f"{work}/static", code=125, says="statically linked")
            with open(status) as file:
                if json.load(file)["code"] != 14:
                    raise Failure("the status file does not have the class")
    shutil.copy2("/bin/true", f"{work}/suid")
    os.chmod(f"{work}/suid", os.stat(f"{work}/suid").st_mode | stat.S_ISGID)
    if os.stat(f"{work}/suid").st_mode & stat.S_ISGID:
        call("run", "--", f"{work}/suid", code=125, says="LD_PRELOAD")


def device_maps(work):
    """What is no map is named before anything is done; what is one goes on to the next question."""
    for verb in (("restore", f"{work}/none@latest"), ("resume", str(os.getpid()))):
        for wrong in ("x", "0", "0=", "=1", "0=1,", "0=1;1=0", "-1=0", "0=GPU-12"):
            call(*verb, "--gpu-map", wrong, code=(2, 125), says="is not A=B")
        for right in ("0=1", "0=1,1=0", "GPU-00000000-0000-0000-0000-0000000000ab=3"):
            if "is not A=B" in call(*verb, "--gpu-map", right, code=(1, 10, 12, 14, 125)).stderr:
                raise Failure(f"--gpu-map {right} is not understood")


def files_in_snapshot(work):
    if not os.path.exists(f"{build}/lib/libgpuckpt.so"):
        return "skipped: the library is not built"
    open(f"{work}/file", "w").close()
    store = ("run", "--store", f"{work}/files-store")
    call(*store, f"--files-in-snapshot={work}/none", "--", "true", says=f"{work}/none: No such file")
    call(*store, f"--files-in-snapshot={work}/file", "--", "true", says=f"{work}/file is no folder")
    for right in (f"--files-in-snapshot={work}", "--files-in-snapshot"):
        if call(*store, right, "--", "true").stderr:
            raise Failure(f"{right} is warned of")
    return None


def import_of_a_folder(work):
    call("import", "-i", work, f"{work}/none", code=1, says="is a folder")
    if os.path.exists(f"{work}/none"):
        raise Failure("a store was made for it")


def run_execs(work):
    if not os.path.exists(f"{build}/lib/libgpuckpt.so"):
        return "skipped: the library is not built"
    done = subprocess.run([gpuckpt, "run", "--store", f"{work}/s", "--job", "j", "--every", "1h", "--", "sh", "-c",
                           "echo $LD_PRELOAD; echo $GPUCKPT_STORE $GPUCKPT_JOB $GPUCKPT_EVERY; exit 7"],
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 7 or done.stdout != f"{build}/lib/libgpuckpt.so\n{work}/s j 1h\n":
        raise Failure(f"run: {done}")
    done = subprocess.run([gpuckpt, "run", "sh", "-c", "exit 9"], capture_output=True, text=True, timeout=60, cwd=work)
    if done.returncode != 9:
        raise Failure(f"run without --: {done}")
    script = f"{work}/script"
    with open(script, "w") as file:
        file.write("#!/usr/bin/env sh\nexit 4\n")
    os.chmod(script, 0o755)
    if subprocess.run([gpuckpt, "run", "--", script], capture_output=True, timeout=60, cwd=work).returncode != 4:
        raise Failure("a script does not run")
    return None


def wait_until_it_listens(program):
    """Before, the command says that the program is still starting."""
    while not int(re.search(r"SigCgt:\s*(\w+)", open(f"/proc/{program.pid}/status").read())[1], 16) >> 31 & 1:
        if program.poll() is not None:
            raise Failure(f"ended with {program.returncode} before it listened")
        time.sleep(0.005)


def late_request(work):
    """A busy machine: the command line connects, and sends what it wants later than the library waits. It asks again."""
    store, session = f"{work}/s", f"{work}/session"
    env = {**os.environ, "LD_PRELOAD": f"{build}/lib/libgpuckpt.so", "GPUCKPT_STORE": store, "GPUCKPT_SESSION_DIR": session}
    program = subprocess.Popen(["sleep", "60"], env=env)
    try:
        wait_until_it_listens(program)
        late = {"LD_PRELOAD": f"{build}/tests/late_send.so", "GPUCKPT_SESSION_DIR": session}
        started = time.monotonic()
        done = call("checkpoint", program.pid, env=late)
        if time.monotonic() - started < 2:
            raise Failure("the request was not late")
        call("restore", "--dry-run", f"{store}@{done.stdout.strip()}")
    finally:
        program.kill()
        program.wait()


def doctor(work):
    findings = json.loads(call("doctor", "--json", "--store", f"{work}/s", code=(0, 1, 3)).stdout)
    if {"machine", "store", "driver", "namespaces", "time to durable"} - {f["name"] for f in findings}:
        raise Failure(f"doctor: {findings}")
    for finding in findings:
        if finding["grade"] != "ok" and not finding["remedy"]:
            raise Failure(f"doctor names no remedy: {finding}")
    if os.listdir(work):
        raise Failure("doctor leaves files behind")


TESTS = [helps, usage, absent, unwritable_store, another_owner, processes, store_verbs, mirror_status, device_maps, files_in_snapshot, import_of_a_folder, run_refuses, run_execs, late_request,
         doctor]


def main():
    failed = 0
    for test in TESTS:
        if len(sys.argv) > 2 and test.__name__ not in sys.argv[2:]:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gpuckpt-cli-") as work:
            try:
                note = test(work)
                print(f"ok {test.__name__} {note or ''} in {time.monotonic() - start:.1f} s")
            except Failure as failure:
                failed += 1
                print(f"FAILED {test.__name__}: {failure}")
    return failed != 0


sys.exit(main())
