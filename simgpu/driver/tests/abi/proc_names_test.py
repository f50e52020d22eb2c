#!/usr/bin/env python3
"""proc_names_test.py LIBCUDA: cuGetProcAddress knows every function that the driver exports.

A program that resolves a name at run time (NVIDIA's runtime does so for all) must not find less than one that links."""
import ctypes
import re
import subprocess
import sys

NEWEST = 13000
PER_THREAD = 2
# Exported by NVIDIA's driver, declared in no header, so no version is known.
UNDOCUMENTED = {"cuEGLApiInit", "cuMemGetAttribute"}


def main():
    path = sys.argv[1]
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    exported = {name for name in names if name.startswith("cu")}
    assert len(exported) > 600, f"nm tells only {len(exported)} functions of {path}"
    driver = ctypes.CDLL(path)
    wrong = []
    for symbol in sorted(exported):
        name = re.sub(r"(_v\d+)?(_pt[sd][sz])?$", "", symbol)
        flags = PER_THREAD if re.search(r"_pt[sd][sz]$", symbol) else 0
        found, status = ctypes.c_void_p(), ctypes.c_int()
        result = driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), NEWEST, ctypes.c_uint64(flags),
                                            ctypes.byref(status))
        if (result == 0 and found.value is not None) == (name in UNDOCUMENTED):
            wrong.append(f"{symbol}: result {result}, address {found.value}, status {status.value}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
