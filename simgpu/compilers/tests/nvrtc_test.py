#!/usr/bin/env python3
"""A request for machine code of the simulated device yields an image that its driver loads: nvrtc_test.py DRIVER LIBRARY

With NVIDIA's NVRTC through cuda.bindings, which ./setup installs. What is asked of NVRTC otherwise is NVIDIA's answer."""
import os
import subprocess
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[3] / ".venv" / "bin" / "python"
SOURCE = b'extern "C" __global__ void k(int* p) { p[threadIdx.x] = 2 * p[threadIdx.x] + 1; }'


def inside():
    import numpy as np
    from cuda.bindings import driver, nvrtc

    def ok(result):
        assert result[0] == 0, result
        return result[1] if len(result) == 2 else result[1:]

    def compiled(*options):
        program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"k.cu", 0, [], []))
        ok(nvrtc.nvrtcCompileProgram(program, len(options), list(options)))
        size = ok(nvrtc.nvrtcGetCUBINSize(program))
        image = b" " * size
        if size:
            ok(nvrtc.nvrtcGetCUBIN(program, image))
        return image

    assert compiled(b"-arch=compute_120") == b"", "a virtual target has no machine code"
    assert compiled(b"-arch=sm_90").startswith(b"\x7fELF"), "another device's machine code is none of ours"
    image = compiled(b"-arch=sm_120")
    assert b".entry k" in image and image.endswith(b"\0"), image[:80]
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(image)), b"k"))
    data = np.arange(32, dtype=np.int32)
    memory = ok(driver.cuMemAlloc(data.nbytes))
    ok(driver.cuMemcpyHtoD(memory, data.ctypes.data, data.nbytes))
    pointer = np.array([int(memory)], dtype=np.uint64)
    arguments = np.array([pointer.ctypes.data], dtype=np.uint64)
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, arguments.ctypes.data, 0))
    got = np.zeros_like(data)
    ok(driver.cuMemcpyDtoH(got.ctypes.data, memory, got.nbytes))
    assert (got == 2 * data + 1).all(), got
    print("nvrtc ok")


def main():
    if sys.argv[1:] == ["inside"]:
        return inside()
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import cuda.bindings.nvrtc"], capture_output=True).returncode != 0:
        print("no cuda.bindings here: ./setup installs it")
        return 77
    return subprocess.run([PYTHON, __file__, "inside"], env=os.environ | {"LD_PRELOAD": ":".join(sys.argv[1:3])}).returncode


if __name__ == "__main__":
    sys.exit(main())
