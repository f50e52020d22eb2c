#!/usr/bin/env python3
"""Snapshots of one program, one after the other: only what changed moves, each is whole, also when its parent is gone.

incremental_test.py BUILD_DIR. The subject is this file itself with `subject` as argument.
"""
import ctypes
import hashlib
import json
import os
import signal
import sys
import time

CHUNK = 65536
BYTES = 16 << 20


def subject():
    """Fills device memory; then does what the file "order" says: a number n: changes chunk n; "read": writes a digest."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def ok(result):
        if result:
            sys.exit(f"driver error {result}")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(BYTES)))
    pattern = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(BYTES // 64))
    ok(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0), ctypes.c_size_t(BYTES)))
    ok(cuda.cuMemcpyHtoD_v2(memory, pattern, ctypes.c_size_t(len(pattern))))  # one half stays zero
    done = 0
    print("filled", flush=True)
    while True:
        time.sleep(0.01)
        try:
            number, what = os.readlink("order").split()  # a link: nothing is open when a snapshot comes
        except (OSError, ValueError):
            continue
        if int(number) <= done:
            continue
        done = int(number)
        if what == "read":
            host = ctypes.create_string_buffer(BYTES)
            ok(cuda.cuMemcpyDtoH_v2(host, memory, ctypes.c_size_t(BYTES)))
            result = hashlib.sha256(host.raw).hexdigest()
        else:
            ok(cuda.cuMemsetD8_v2(ctypes.c_uint64(memory.value + int(what) * CHUNK + 100), ctypes.c_ubyte(done),
                                  ctypes.c_size_t(1000)))
            ok(cuda.cuCtxSynchronize())
            result = "changed"
        with open("answer.tmp", "w") as file:
            file.write(f"{done} {result}")
        os.rename("answer.tmp", "answer")


class Orders:
    def __init__(self, harness, session):
        self.harness, self.session, self.number = harness, session, 0

    def give(self, what):
        self.number += 1
        (self.session.work / "order.tmp").symlink_to(f"{self.number} {what}")
        os.rename(self.session.work / "order.tmp", self.session.work / "order")
        begin = time.monotonic()
        while time.monotonic() - begin < 60:
            try:
                number, result = (self.session.work / "answer").read_text().split()
                if int(number) == self.number:
                    return result
            except (OSError, ValueError):
                pass
            time.sleep(0.01)
        raise self.harness.Failure(f"no answer to order {self.number}: {self.session.errors('out')}")


def main():
    import harness
    tools = harness.Tools(harness.find_build(sys.argv[1]))
    with harness.Session(tools, 3) as session:
        # A folder per process would be another test; the program may not keep files open while it waits.
        process = session.run([sys.executable, "-S", os.path.abspath(__file__), "subject"])
        session.wait_lines(1, process)
        orders = Orders(harness, session)
        digests, host = {}, []

        def snapshot():
            digest = orders.give("read")
            snapshot_id = session.snapshot(process, "signal")
            digests[snapshot_id] = digest
            stats = json.loads(session.cli("inspect", f"{session.store}@{snapshot_id}", "--json").stdout)
            stats = stats.get("stats") or stats["meta"]["stats"]
            host.append(stats)
            return snapshot_id, stats["moved_bytes"]

        def expect(moved, least, most, what):
            if not least * CHUNK <= moved <= most * CHUNK * 1.05:
                raise harness.Failure(f"{what}: {moved / CHUNK:.1f} chunks moved, not {least} to {most}")

        half = BYTES // 2 // CHUNK
        first, moved = snapshot()
        expect(moved, half, half, "first")
        second, moved = snapshot()
        expect(moved, 0, 0, "nothing changed")
        orders.give(5)
        orders.give(half + 7)
        third, moved = snapshot()
        expect(moved, 2, 2, "two changed")
        session.cli("prune", session.store, "--keep", "1")
        orders.give(6)
        fourth, moved = snapshot()
        expect(moved, 1, 1, "one changed after a prune")
        # Somebody throws the parent away: everything is sent again.
        os.remove(session.store / "snapshots" / f"{fourth}.manifest")
        fifth, moved = snapshot()
        expect(moved, half + 1, half + 1, "parent gone")
        orders.give(9)
        sixth, moved = snapshot()
        expect(moved, 1, 1, "one changed after that")
        # Host memory is tracked in a process with a device, too.
        if host[-1]["track"] == "uffd" and host[-1]["unchanged_bytes"] < BYTES // 2:
            raise harness.Failure(f"only {host[-1]['unchanged_bytes']} bytes of the host were known to be unchanged")
        session.cli("verify", session.store)
        session.kill(process)
        for snapshot_id in (sixth, fifth, third):
            for name in ("order", "answer"):
                (session.work / name).unlink(missing_ok=True)
            restored = session.restore(snapshot_id, out=f"restore-{snapshot_id}", options=["--files=keep"])
            orders.number += 100
            got = orders.give("read")
            if got != digests[snapshot_id]:
                raise harness.Failure(f"{snapshot_id} restored has other device memory than it had")
            os.kill(restored.restored_pid, signal.SIGKILL)
            restored.wait(30)
    print("PASS")


if __name__ == "__main__":
    if sys.argv[1:] == ["subject"]:
        subject()
    else:
        main()
