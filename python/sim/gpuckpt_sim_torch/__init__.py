"""Kernels in PTX for PyTorch's operators, so that an unmodified program runs with device="cuda" on the simulated GPU.

PyTorch's own CUDA kernels are machine code. What takes their place, by operator:

1. flag-gems, which has about 430 of them in Triton;
2. our own in Triton, and those made from others (in-place and out= forms, lists of tensors): operators.py;
3. PyTorch's CPU kernel on copies of the tensors, for the rest.

Tested with the versions in TESTED.
"""
import contextlib
import os
import sys
import warnings
from importlib import metadata

TESTED = {"torch": "2.11.0", "triton": "3.6.0", "flag-gems": "5.0.2"}


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_versions():
    there = {package: _version(package) for package in TESTED}
    wanted = " ".join(f"{package}=={version}" for package, version in TESTED.items())
    missing = [package for package, version in there.items() if version is None]
    if missing:
        raise RuntimeError(f"gpuckpt run --sim=torch needs {' and '.join(missing)} in {sys.executable}: pip install {wanted}")
    other = [f"{package} {there[package]}" for package, version in TESTED.items() if there[package].split("+")[0] != version]
    if other:
        print(f"gpuckpt: --sim=torch is tested with {wanted}; this is {', '.join(other)}", file=sys.stderr)


def enable():
    """Registers the kernels. CUDA must be initialised: flag-gems asks for the device."""
    _check_versions()
    # Its table of measured configurations is a file that several programs share: none is needed, see autotuning.py.
    os.environ.setdefault("FLAGGEMS_DB_URL", "sqlite://")
    from . import autotuning
    autotuning.bound()
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):  # standard output is the program's
        warnings.simplefilter("ignore")
        import flag_gems
        from . import kernels, operators
        flag_gems.enable(unused=[function.__name__ for key, function, *_ in flag_gems._FULL_CONFIG if key in kernels.REPLACED],
                         registrar=operators.Registrar)
        operators.register(set(flag_gems.all_registered_keys()))
        import torch
        kernels.drawn(torch.device("cuda", torch.cuda.current_device()))  # not first in a graph


def prepare(torch):
    """Right after `import torch`: the kernels come when the program first uses CUDA, and not in a process that never does."""
    # Libraries and fused kernels that are chosen in front of the operators: what is left is made of operators.
    torch.backends.cudnn.enabled = False
    for choose in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_cudnn_sdp"):
        getattr(torch.backends.cuda, choose)(False)
    os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")  # torch.compile: measure nothing
    torch.cuda._lazy_call(enable)


def prepare_inductor(triton_heuristics):
    """torch.compile has an autotuner of its own."""
    from . import autotuning
    autotuning.bound_inductor(triton_heuristics)
