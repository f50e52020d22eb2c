"""What a machine has that the experiments need: nvcc, cuda.h, the GPU's target. What is not there is None, whatever the reason."""
import glob
import os
import re
import shutil
import subprocess
from pathlib import Path


def words_of(command):
    """What a command prints, split; empty when it cannot be started, does not end, or there is none."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=20).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return []


def find_nvcc(*more):
    """PROBE_NVCC ("none" for rehearsals), PATH, CUDA_HOME, the usual folders, newest first, then `more`."""
    if os.environ.get("PROBE_NVCC"):
        return os.environ["PROBE_NVCC"] if os.access(os.environ["PROBE_NVCC"], os.X_OK) else None
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    homes += ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True), "/opt/cuda", *sorted(glob.glob("/opt/nvidia/cuda*"))]
    for candidate in (shutil.which("nvcc"), *(f"{home}/bin/nvcc" for home in homes), *more):
        if candidate and os.access(candidate, os.X_OK):
            return str(Path(candidate).resolve())
    return None


def find_include(python, *more):
    """The folder with cuda.h: PROBE_INCLUDE alone when set, the toolkit's, else one that a Python package brought."""
    if "PROBE_INCLUDE" in os.environ:
        folders = [os.environ["PROBE_INCLUDE"]]
    else:
        nvcc = find_nvcc(*more)
        folders = [str(Path(nvcc).parents[1] / "include")] if nvcc else []
        for pattern in ("/usr/local/cuda/include", "/usr/local/cuda-*/include", "/opt/cuda/include", "/usr/include",
                        "/usr/local/cuda*/targets/x86_64-linux/include"):
            folders += sorted(glob.glob(pattern), reverse=True)
        for site in words_of([python, "-c", "import site, sys; print('\\n'.join(site.getsitepackages() + sys.path))"]):
            folders += sorted(glob.glob(f"{site}/nvidia/cu*/include") + glob.glob(f"{site}/nvidia/cuda_runtime/include")
                              + glob.glob(f"{site}/triton/backends/nvidia/include"))
    return next((folder for folder in folders if os.path.exists(f"{folder}/cuda.h")), None)


def native_target():
    """The compute capability for machine code beside the PTX, "90"; None when nvidia-smi does not say."""
    query = words_of(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])
    return query[0].replace(".", "") if query and re.fullmatch(r"\d+\.\d", query[0]) else None
