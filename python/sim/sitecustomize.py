"""Found by Python before the program starts: `gpuckpt run --sim=torch` puts this folder first in PYTHONPATH.

Importing torch must cost a program that does not use it nothing, and a program may import it late or never: a finder waits
for that import. Another sitecustomize, which this one hides, is run as well.
"""
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _After:
    """Calls a function of gpuckpt_sim_torch with a module that was just imported, and is then gone."""

    def __init__(self, name, function):
        self.name, self.function = name, function

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                import gpuckpt_sim_torch
                getattr(gpuckpt_sim_torch, self.function)(module)

            spec.loader.exec_module = exec_module
        return spec


def _run_hidden():
    path = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("GPUCKPT_SIM") == "torch":
    sys.meta_path[:0] = [_After("torch", "prepare"), _After("torch._inductor.runtime.triton_heuristics", "prepare_inductor")]
_run_hidden()
