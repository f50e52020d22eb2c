#!/usr/bin/env python3
"""spec_test.py COMPILER CUDA_INCLUDE: the spec has every function the CUDA headers declare, with its parameters, and
cuGetProcAddress knows them by the versions of cudaTypedefs.h."""
import csv
import os
import re
import subprocess
import sys

compiler, include = sys.argv[1:3]
here = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "spec")
spec = {r["symbol"]: r for r in csv.DictReader(open(os.path.join(here, "driver_api.csv"), newline=""))}
prototypes = {r["symbol"]: r["parameters"] for r in csv.DictReader(open(os.path.join(here, "prototypes.csv"), newline=""))}


def preprocess(*options, header="cuda.h"):
    return subprocess.run([compiler, "-E", "-P", "-x", "c", "-I" + include, *options, "-"], input=f"#include <{header}>\n",
                          capture_output=True, text=True, check=True).stdout


def types(parameters):
    """Parameter types without names, which differ between declarations of one function."""
    found = []
    for p in parameters.split(","):
        p = re.sub(r"\s+", " ", p.strip())
        if p in ("", "void"):
            continue
        m = re.match(r"^(.*?)(\w+)(\[\d*\])?$", p)
        found.append((m.group(1) + ("*" if m.group(3) else "")).replace(" ", ""))
    return found


errors = []
declared = set()
for options in ([], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"], ["-D__CUDA_API_VERSION_INTERNAL"]):
    text = re.sub(r"__attribute__\(\([^)]*\)\)", "", preprocess(*options)).replace("\n", " ")
    for m in re.finditer(r"\bCUresult\s+(cu\w+)\s*\(([^()]*)\)\s*;", text):
        declared.add(m.group(1))
        if m.group(1) not in spec:
            errors.append(f"{m.group(1)}: declared in cuda.h, no row in driver_api.csv")
        elif types(m.group(2)) != types(prototypes.get(m.group(1), "?")):
            errors.append(f"{m.group(1)}: cuda.h says ({m.group(2)}), prototypes.csv ({prototypes.get(m.group(1))})")
if len(declared) < 600:
    errors.append(f"only {len(declared)} declarations found: the test is broken")

stub = os.path.join(include, "../lib/stubs/libcuda.so")
if not os.path.exists(stub):
    stub = os.path.join(include, "../lib64/stubs/libcuda.so")
if os.path.exists(stub):
    out = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True).stdout
    for symbol in re.findall(r" (cu\w+)$", out, re.M):
        if symbol not in spec:
            errors.append(f"{symbol}: exported by the driver stub, no row in driver_api.csv")

versions = {}
for name, version, thread in re.findall(r"\bPFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\b", open(os.path.join(include, "cudaTypedefs.h")).read()):
    if not thread:
        versions.setdefault(name, set()).add(int(version))
for name, found in versions.items():
    for k, version in enumerate(sorted(found)):
        symbol = name if k == 0 else f"{name}_v{k + 1}"
        row = spec.get(symbol)
        if row and (row["base"] != name or int(row["version"] or 0) != version):
            errors.append(f"{symbol}: cudaTypedefs.h has {name} version {version}, the spec {row['base']} {row['version']}")

for e in errors:
    print(e)
print(f"{len(declared)} declarations, {len(versions)} names with versions, {len(errors)} differences")
sys.exit(bool(errors))
