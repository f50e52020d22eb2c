#!/usr/bin/env python3
"""What --sim=torch does to a Python program around its imports, with a torch that is only a few names: hook_test.py"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SIM = Path(__file__).resolve().parents[2] / "python" / "sim"
TORCH = """
import types
calls = []
disabled = []
switch = lambda name: lambda on: on or disabled.append(name)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(enabled=True), cuda=types.SimpleNamespace(
    **{name: switch(name) for name in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_cudnn_sdp")}))
cuda = types.SimpleNamespace(_lazy_call=calls.append)
"""


def main():
    failures = []
    with tempfile.TemporaryDirectory(prefix="gpuckpt-hook-") as folder:
        folder = Path(folder)
        (folder / "torch").mkdir()
        (folder / "torch" / "__init__.py").write_text(TORCH)
        (folder / "own").mkdir()
        (folder / "own" / "sitecustomize.py").write_text("import builtins; builtins.own = 'here'\n")

        def check(what, program, wanted, sim="torch"):
            env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{SIM}:{folder / 'own'}:{folder}", "PYTHONDONTWRITEBYTECODE": "1",
                   "GPUCKPT_SIM": sim}
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
            if done.stdout.strip() != wanted or done.stderr:
                failures.append(f"{what}: {done.stdout.strip()!r}, not {wanted!r}; {done.stderr.strip()}")

        check("the user's own sitecustomize runs", "print(own)", "here")
        check("nothing is imported for a program without torch",
              "import sys, json; print([m for m in sys.modules if 'torch' in m])", "[]")
        check("a program that imports torch", "import torch; print(torch.backends.cudnn.enabled, len(torch.disabled), len(torch.calls))",
              "False 3 1")
        check("twice, and from two places", "import torch, importlib; import torch as t; print(len(t.calls), t.__spec__.name)", "1 torch")
        check("without --sim=torch", "import torch; print(torch.backends.cudnn.enabled, len(torch.calls))", "True 0", sim="1")
        check("torch cannot be found", "import sys; sys.path = [p for p in sys.path if 'hook' not in p]\n"
              "try: import torch\nexcept ModuleNotFoundError as e: print(e.name)", "torch")
        check("what it needs is not there",
              "import torch, gpuckpt_sim_torch as g\ng._version = lambda package: None if package == 'flag-gems' else g.TESTED[package]\n"
              "try: torch.calls[0]()\nexcept RuntimeError as e: print(str(e).replace(__import__('sys').executable, 'PYTHON'))",
              "gpuckpt run --sim=torch needs flag-gems in PYTHON: pip install torch==2.11.0 triton==3.6.0 flag-gems==5.0.2")
    print("\n".join(failures) or "the hook does what it says")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
