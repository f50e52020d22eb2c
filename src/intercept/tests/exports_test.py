#!/usr/bin/env python3
"""exports_test.py LIBRARY driver_api.csv: exactly the driver's symbols and two of libc's are exported; only libc is needed."""
import csv
import re
import subprocess
import sys

library, spec = sys.argv[1:3]
wanted = {r["symbol"] for r in csv.DictReader(open(spec, newline=""))} | {"dlopen", "pthread_key_create", "gpuckpt_test_control"}
nm = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
found = set(re.findall(r" \w (\S+)$", nm, re.M))
needed = re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout)
undefined = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
cxx = [s for s in re.findall(r" (\S+)$", undefined, re.M) if s.startswith(("_Z", "__gxx", "__cxa_throw", "__cxa_guard"))]
print("missing:", sorted(wanted - found), "extra:", sorted(found - wanted), "needed:", needed, "C++:", cxx)
soname = "libcuda.so.1" in subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
sys.exit(found != wanted or bool(set(needed) - {"libc.so.6", "ld-linux-x86-64.so.2"}) or bool(cxx) or not soname)
