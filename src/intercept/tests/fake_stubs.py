#!/usr/bin/env python3
"""fake_stubs.py driver_api.csv fake_driver.c > fake_stubs.c: the entry points fake_driver.c does not have, and the table
for its cuGetProcAddress."""
import csv
import re
import sys

declared = {r["symbol"] for r in csv.DictReader(open(sys.argv[1].replace("driver_api", "prototypes"), newline=""))}
rows = [r for r in csv.DictReader(open(sys.argv[1], newline="")) if r["symbol"] in declared]
written = set(re.findall(r"^EXPORT \w+ (cu\w+)\(", open(sys.argv[2]).read(), re.M))
print('#define EXPORT __attribute__((visibility("default")))')
for i, r in enumerate(rows):
    if r["symbol"] in written:
        print(f"int {r['symbol']}();")
    else:
        print(f"EXPORT int {r['symbol']}(void) {{ return {1000 + i}; }}")
print("struct entry { const char* base; int version; int per_thread; void* function; };")
print("const struct entry fake_entries[] = {")
count = 0
for r in rows:
    if r["version"]:
        print(f'  {{"{r["base"]}", {r["version"]}, {int(r["flag"] == "PTDS")}, (void*){r["symbol"]}}},')
        count += 1
print(f"}};\nconst int fake_entry_count = {count};")
