#!/usr/bin/env python3
"""The stand-in for ptxas: what compilers ask of it, and what it must not take: ptxas_test.py PTXAS"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = ".version 8.7\n.target sm_120a\n.address_size 64\n"
KERNEL = HEAD + ".visible .entry k() {{ .reg .b32 %r<4>; {} ret; }}\n"


def main():
    ptxas, failures = sys.argv[1], []
    with tempfile.TemporaryDirectory(prefix="gpuckpt-ptxas-") as folder:
        folder = Path(folder)
        good, bad = folder / "good.ptx", folder / "bad.ptx"
        good.write_text(KERNEL.format("mov.u32 %r0, %tid.x;"))
        bad.write_text(KERNEL.format("frobnicate.u32 %r0, %r1;"))

        def check(what, arguments, status, pattern="", output=None):
            for old in folder.glob("out*"):
                old.unlink()
            done = subprocess.run([ptxas, *map(str, arguments)], capture_output=True, text=True, cwd=folder)
            said = done.stdout + done.stderr
            if done.returncode != status or not re.search(pattern, said):
                failures.append(f"{what}: exit {done.returncode}: {said.strip()}")
            elif output and (folder / output).read_text() != good.read_text():
                failures.append(f"{what}: the image is not the text")
            elif not output and list(folder.glob("out*")):
                failures.append(f"{what}: an output file although it failed")

        # Triton reads the version so, and calls it so.
        check("version", ["--version"], 0, r"release 13\.0\b")
        check("as Triton calls it", ["-lineinfo", "-v", "--gpu-name=sm_120a", good, "-o", "out"], 0, "", "out")
        check("without optimisation", ["-suppress-debug-info", "--fmad=false", "-v", "--opt-level", "0", "--gpu-name=sm_120a", good, "-o", "out"],
              0, "", "out")
        check("as nvcc calls it", ["-arch=sm_120", "-m64", "-O3", good, "-oout"], 0, "", "out")
        check("long names", ["--gpu-name", "sm_120a", f"--output-file={folder}/out", good], 0, "", "out")
        check("an unknown instruction", ["--gpu-name=sm_120a", bad, "-o", "out"], 1, r"^ptxas fatal   : .*bad\.ptx: .*frobnicate")
        check("PTX of a newer device than asked for", ["--gpu-name=sm_90", good, "-o", "out"], 1, "sm_120")
        check("no PTX", ["--gpu-name=sm_120a", sys.executable, "-o", "out"], 1, "cannot run this")
        check("a relocatable object", ["-c", good, "-o", "out"], 1, "no relocatable objects")
        check("two inputs", [good, bad, "-o", "out"], 1, "more than one input file")
        check("no input", ["-o", "out"], 1, "no input file")
        check("an absent input", [folder / "absent", "-o", "out"], 1, "cannot read .*absent: No such file")
        check("nowhere to write", [good, "-o", folder / "no" / "out"], 1, "cannot write .*: No such file")
        check("a bad target", ["--gpu-name=volta", good, "-o", "out"], 1, "volta is no target")
    print("\n".join(failures) or "ptxas: all right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
