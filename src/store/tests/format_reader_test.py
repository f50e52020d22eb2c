#!/usr/bin/env python3
"""format_reader.py, written from docs/FORMAT.md alone, extracts what the code wrote. format_reader_test.py EXAMPLE_WRITER"""
import filecmp
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
reader = os.path.join(here, "format_reader.py")

with tempfile.TemporaryDirectory() as work:
    store = f"{work}/store"
    subprocess.run([sys.argv[1], store], check=True)
    listed = subprocess.run([sys.executable, reader, store], check=True, capture_output=True, text=True).stdout.split("\n")
    assert len(listed) == 4, listed
    assert listed[0].startswith("20270115-080000250-") and " demo " in listed[0], listed[0]
    for snapshot in os.listdir(f"{store}.expected"):
        subprocess.run([sys.executable, reader, store, snapshot, f"{work}/out"], check=True)
        wanted = f"{store}.expected/{snapshot}"
        assert sorted(os.listdir(wanted)) == sorted(os.listdir(f"{work}/out")), os.listdir(f"{work}/out")
        for name in os.listdir(wanted):
            assert filecmp.cmp(f"{wanted}/{name}", f"{work}/out/{name}", shallow=False), name
    pack = max((f"{store}/packs/{n}" for n in os.listdir(f"{store}/packs")), key=os.path.getsize)
    with open(pack, "r+b") as file:
        file.seek(os.path.getsize(pack) // 3)
        byte = file.read(1)[0] ^ 1
        file.seek(-1, 1)
        file.write(bytes([byte]))
    failed = [subprocess.run([sys.executable, reader, store, s, f"{work}/out"], capture_output=True, text=True)
              for s in os.listdir(f"{store}.expected")]
    assert any("damaged" in f.stderr for f in failed), failed
print("EXIT-SUCCESS")
