"""api.py CASE: the Python package, as a program uses it; api_test.py runs it."""
import mmap
import os
import sys
import threading
import time

import gpuckpt


def inert():
    ran = []
    gpuckpt.on_snapshot(lambda: ran.append(1))
    with gpuckpt.critical("section"), gpuckpt.critical():
        result = gpuckpt.checkpoint(tag="nothing")
    assert not result and result.code == gpuckpt.ABSENT and result.text and not ran
    assert not gpuckpt.present() and gpuckpt.generation() == 0 and gpuckpt.begin().done()
    gpuckpt.tag("t"), gpuckpt.exclude(bytearray(100)), gpuckpt.include(bytearray(100))


def python():
    assert gpuckpt.present() and gpuckpt.generation() == 0
    order, lock = [], threading.Lock()

    @gpuckpt.on_snapshot
    def before():
        lock.acquire()
        order.append("before")

    def after(word):
        order.append(word)
        lock.release()

    def resumed():
        after("resumed")

    def restored():
        after(f"restored {gpuckpt.generation()}")

    gpuckpt.on_resume(resumed), gpuckpt.on_restore(restored)

    cache = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    cache[:] = b"c" * len(cache)
    gpuckpt.exclude(cache)

    # Begun inside a section, so it is taken behind it.
    with gpuckpt.critical("outer"):
        with gpuckpt.critical("inner"):
            pending = gpuckpt.begin(tag="one", timeout=30)
        time.sleep(0.05)
        assert not pending.done()
        try:
            pending.wait()
            raise AssertionError("waited inside a section")
        except RuntimeError:
            pass
    result = pending.wait()
    assert result and result.id and result.code == gpuckpt.OK, result
    while len(order) < 2:
        time.sleep(0.01)
    with lock:
        if not result.restored:
            assert order == ["before", "resumed"] and cache[5] == ord("c"), order
            print("durable", flush=True)
            while True:
                time.sleep(1)
        assert order == ["before", "restored 1"] and gpuckpt.generation() == 1, order
        assert cache[:] == bytes(len(cache))
    gpuckpt.include(cache)
    for hook in (before, resumed, restored):
        gpuckpt.remove_hook(hook)
    gpuckpt.tag("two")
    assert gpuckpt.checkpoint().code == gpuckpt.OK and len(order) == 2
    with gpuckpt.critical("too long"):
        slow = gpuckpt.begin(timeout=0.3)
        while not slow.done():
            time.sleep(0.01)
        assert slow.wait().code == gpuckpt.TIMEOUT and "too long" in slow.wait().text, slow.wait()
    try:
        gpuckpt.tag("x" * 200)
        raise AssertionError("too long a tag")
    except OSError:
        pass


{"inert": inert, "python": python}[sys.argv[1]]()
print("ok", flush=True)
os._exit(0)
