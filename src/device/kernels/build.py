#!/usr/bin/env python3
"""Makes kernels.fatbin.tar.xz (and kernels.ptx, its portable part) from hash.cu: needs nvcc of CUDA 13.

  build.py            writes both files, and kernels.made, which says from what
  build.py --check    compares what is here with the sources, and with a fresh build where the
                      compiler is the one that made it

The PTX is lowered to an old language version on purpose: it then loads on every driver that knows
sm_70, however old, while the machine code is for drivers that are as new as the compiler.
"""
import hashlib
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TARGETS = (75, 80, 90, 100, 120)  # code runs on later minor versions, too
PTX_VERSION, PTX_TARGET = "6.4", 70
ARCHIVE = "kernels.fatbin.tar.xz"


def tool(name):
    found = shutil.which(name)
    for folder in ("/usr/local/cuda/bin", HERE.parents[2] / ".deps/cuda/bin"):
        if not found and (pathlib.Path(folder) / name).exists():
            found = str(pathlib.Path(folder) / name)
    return found


def release():
    nvcc = tool("nvcc")
    if not nvcc:
        return None
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V[0-9.]+", text).group(0)


def made():
    return f"hash.cu {hashlib.sha256((HERE / 'hash.cu').read_bytes()).hexdigest()}\nnvcc {release()}\n"


def build(to):
    with tempfile.TemporaryDirectory() as folder:
        def run(*command):
            subprocess.run(command, check=True, cwd=folder)
        shutil.copy(HERE / "hash.cu", folder)
        run(tool("nvcc"), "--ptx", "-O3", "-arch=compute_75", "-o", "new.ptx", "hash.cu")
        ptx = pathlib.Path(folder, "new.ptx").read_text()
        ptx = re.sub(r"^//.*\n", "", ptx, flags=re.M)
        ptx = re.sub(r"\.version .*", f".version {PTX_VERSION}", ptx)
        ptx = re.sub(r"\.target .*", f".target sm_{PTX_TARGET}", ptx)
        (to / "kernels.ptx").write_text("// Made by build.py from hash.cu: do not edit.\n" + ptx.strip() + "\n")
        images = [f"--image3=kind=ptx,sm={PTX_TARGET},file={to / 'kernels.ptx'}"]
        for target in TARGETS:
            run(tool("nvcc"), "--cubin", "-O3", f"-arch=sm_{target}", "-o", f"{target}.cubin", "hash.cu")
            images.append(f"--image3=kind=elf,sm={target},file={target}.cubin")
        run(tool("fatbinary"), "-64", "-compress=false", "--create", str(to / "kernels.fatbin"), *images)


def pack(fatbin):
    """Tracked files of this size are text or compressed. The same bytes make the same archive."""
    entry = tarfile.TarInfo("kernels.fatbin")
    entry.size = len(fatbin)
    with tarfile.open(HERE / ARCHIVE, "w:xz", preset=9) as archive:
        archive.addfile(entry, io.BytesIO(fatbin))


def unpacked():
    with tarfile.open(HERE / ARCHIVE) as archive:
        return archive.extractfile("kernels.fatbin").read()


def main():
    if sys.argv[1:] == ["--check"]:
        old = (HERE / "kernels.made").read_text()
        if old.splitlines()[0] != made().splitlines()[0]:
            sys.exit("hash.cu was changed after the kernels were made: run src/device/kernels/build.py")
        if old != made():
            print("another compiler made the kernels: not compared")
            return
        with tempfile.TemporaryDirectory() as folder:
            build(pathlib.Path(folder))
            for name, old in (("kernels.ptx", (HERE / "kernels.ptx").read_bytes()), ("kernels.fatbin", unpacked())):
                if old != pathlib.Path(folder, name).read_bytes():
                    sys.exit(f"{name} is not what hash.cu compiles to: run src/device/kernels/build.py")
        print("ok")
        return
    with tempfile.TemporaryDirectory() as folder:
        build(pathlib.Path(folder))
        shutil.copy(pathlib.Path(folder, "kernels.ptx"), HERE)
        pack(pathlib.Path(folder, "kernels.fatbin").read_bytes())
    (HERE / "kernels.made").write_text(made())


main()
