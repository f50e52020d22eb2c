"""What a Python program may say to gpuckpt, if it wants to.

No program needs this: ``gpuckpt run -- python train.py`` snapshots it as it is. It is for programs that know
when a good moment is, or have moments at which no snapshot may be taken::

    import gpuckpt

    @gpuckpt.on_restore
    def reconnect():
        session.connect()

    for step in range(steps):
        with gpuckpt.critical("optimizer step"):
            train(step)
        if step % 1000 == 0:
            gpuckpt.checkpoint(tag=f"step-{step}")

In a process that was not started under gpuckpt everything is inert: ``present()`` is False, sections and hooks do
nothing, ``checkpoint()`` returns a Result whose ``code`` is ABSENT.

A thin layer over the C interface, ``include/gpuckpt/gpuckpt.h``, which says more about threads and order. The
interpreter's lock is released in all calls that wait.
"""
import contextlib
import ctypes
import errno
import os
from dataclasses import dataclass

__all__ = ["ABSENT", "ERROR", "LOCKED", "OK", "REFUSED", "TIMEOUT", "Checkpoint", "CheckpointError", "Result", "begin", "checkpoint",
           "critical", "exclude", "generation", "include", "on_restore", "on_resume", "on_snapshot", "present", "remove_hook", "tag"]

OK, ERROR, ABSENT, LOCKED, REFUSED, TIMEOUT = 0, 1, 10, 11, 14, 15


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("tag", ctypes.c_char_p), ("timeout_ms", ctypes.c_uint64)]


class _Result(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("code", ctypes.c_int), ("restored", ctypes.c_int), ("id", ctypes.c_char * 64),
                ("text", ctypes.c_char * 512), ("stall_us", ctypes.c_uint64), ("total_us", ctypes.c_uint64),
                ("logical_bytes", ctypes.c_uint64), ("new_bytes", ctypes.c_uint64), ("stored_bytes", ctypes.c_uint64)]


_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_SIGNATURES = {  # name: result, arguments
    "present": (ctypes.c_int,),
    "generation": (ctypes.c_uint,),
    "checkpoint_begin": (ctypes.c_void_p, ctypes.POINTER(_Options)),
    "checkpoint_poll": (ctypes.c_int, ctypes.c_void_p),
    "checkpoint_wait": (ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(_Result)),
    "checkpoint_free": (None, ctypes.c_void_p),
    "tag": (ctypes.c_int, ctypes.c_char_p),
    "enter": (None, ctypes.c_char_p),
    "leave": (ctypes.c_int,),
    "on_snapshot": (ctypes.c_int, _HOOK, ctypes.c_void_p),
    "on_resume": (ctypes.c_int, _HOOK, ctypes.c_void_p),
    "on_restore": (ctypes.c_int, _HOOK, ctypes.c_void_p),
    "remove_hook": (ctypes.c_int, ctypes.c_int),
    "exclude": (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
    "include": (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
}


def _load():
    """The functions of the preloaded library by their short names; None when there is none."""
    process = ctypes.CDLL(None)
    functions = {}
    for name, (result, *arguments) in _SIGNATURES.items():
        try:
            function = process[f"gpuckpt_{name}"]
        except AttributeError:
            return None
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return type("Library", (), functions)


_library = _load()


def _check(status, what):
    if status < 0:
        raise OSError(-status, f"{what}: {os.strerror(-status)}")
    return status


def present():
    """Does this process run under gpuckpt, so that it can be snapshotted?"""
    return bool(_library and _library.present())


def generation():
    """0 in the process that was first started, one more after each restore."""
    return _library.generation() if _library else 0


@dataclass(frozen=True)
class Result:
    """What became of a checkpoint."""
    code: int = ABSENT  # OK, or one of the others; the numbers are the command line's exit codes
    restored: bool = False  # this is the restored process, and the checkpoint is the one it was restored from
    id: str = ""
    text: str = "this process does not run under gpuckpt"  # a sentence when code is not OK
    stall_us: int = 0  # time in which the program could not make progress
    total_us: int = 0  # from asking to durable
    logical_bytes: int = 0
    new_bytes: int = 0
    stored_bytes: int = 0

    def __bool__(self):
        return self.code == OK


class CheckpointError(RuntimeError):
    """A checkpoint failed; ``result`` says why. The program itself is as it was."""

    def __init__(self, result):
        super().__init__(result.text)
        self.result = result


class Checkpoint:
    """A checkpoint under way. Nothing is lost when it is dropped: it is carried out all the same."""

    def __init__(self, tag=None, timeout=None):
        self._handle = self._result = None
        if _library:
            options = _Options(ctypes.sizeof(_Options), tag.encode() if tag is not None else None, int((timeout or 0) * 1000))
            self._handle = _library.checkpoint_begin(ctypes.byref(options))

    def done(self):
        """Is it over?"""
        return self._result is not None or not _library or bool(_library.checkpoint_poll(self._handle))

    def wait(self, timeout=None):
        """The Result, when the snapshot is durable or has failed. TimeoutError after so many seconds (None: never);
        RuntimeError inside a critical section, for which the snapshot would wait."""
        if self._result is None and not _library:
            self._result = Result()
        if self._result is None:
            raw = _Result(ctypes.sizeof(_Result))
            status = _library.checkpoint_wait(self._handle, -1 if timeout is None else int(timeout * 1000), ctypes.byref(raw))
            if status == -errno.ETIMEDOUT:
                raise TimeoutError("the checkpoint is not over yet")
            if status == -errno.EDEADLK:
                raise RuntimeError("waiting for a checkpoint inside a critical section or a hook would never end")
            self._result = Result(raw.code, bool(raw.restored), raw.id.decode(), raw.text.decode(errors="replace"), raw.stall_us,
                                  raw.total_us, raw.logical_bytes, raw.new_bytes, raw.stored_bytes)
            self._free()
        return self._result

    def _free(self):
        if self._handle:
            _library.checkpoint_free(self._handle)
        self._handle = None

    def __del__(self):
        if getattr(self, "_handle", None):
            self._free()


def begin(tag=None, timeout=None):
    """Asks for a snapshot and returns a Checkpoint at once; the program goes on meanwhile. ``timeout``: seconds within which
    it must be taken."""
    return Checkpoint(tag, timeout)


def checkpoint(tag=None, timeout=None, check=True):
    """A snapshot now; returns its Result when it is durable. Also in the restored process, there with ``restored`` set.
    Raises CheckpointError when it failed, unless ``check`` is False; not when this process does not run under gpuckpt."""
    result = begin(tag, timeout).wait()
    if check and result.code not in (OK, ABSENT):
        raise CheckpointError(result)
    return result


def tag(text):
    """The next snapshot, whatever asks for it, has this tag. None takes it back."""
    if _library:
        _check(_library.tag(None if text is None else text.encode()), "tag")


@contextlib.contextmanager
def critical(name=None):
    """While any thread is inside, no snapshot is taken. Nests."""
    if not _library:
        yield
        return
    _library.enter(name.encode() if name is not None else None)
    try:
        yield
    finally:
        _library.leave()


_hooks = {}  # number -> what keeps the callback alive


def _register(kind, function):
    if _library:
        def call(_, function=function):
            function()

        callback = _HOOK(call)
        number = _check(getattr(_library, kind)(callback, None), kind)
        _hooks[number] = (function, callback)
    return function


def on_snapshot(function):
    """Decorator: runs before each snapshot, in a thread of its own; the last registered first. What it raises is printed and
    otherwise ignored."""
    return _register("on_snapshot", function)


def on_resume(function):
    """Decorator: runs after each snapshot, taken or not, in the process that went on."""
    return _register("on_resume", function)


def on_restore(function):
    """Decorator: runs in a restored process, while the program goes on."""
    return _register("on_restore", function)


def remove_hook(function):
    """Takes back every registration of this function. ValueError when there is none (under gpuckpt)."""
    numbers = [n for n, (known, _) in _hooks.items() if known is function]
    if _library and not numbers:
        raise ValueError(f"{function!r} is no hook")
    for number in numbers:
        _library.remove_hook(number)
        # One that is just running needs its callback: it is kept.


def _range(buffer):
    view = memoryview(buffer)
    if view.readonly or not view.c_contiguous:
        raise ValueError("a writable, contiguous buffer is needed")
    with view.cast("B") as flat:
        return ctypes.addressof(ctypes.c_char.from_buffer(flat)) if len(flat) else 0, len(flat)


def exclude(buffer):
    """Leaves the memory of a buffer (bytearray, numpy array) out of snapshots: whole pages inside it are zero in a restored
    process. Include it again before it is freed."""
    if _library:
        _check(_library.exclude(*_range(buffer)), "exclude")


def include(buffer):
    """Takes ``exclude`` back."""
    if _library:
        _check(_library.include(*_range(buffer)), "include")
