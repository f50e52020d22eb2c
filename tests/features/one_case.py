"""How a test that runs one program in its own way (lazy_test.py, pages_test.py and others) reports and cleans up."""
import argparse
import shutil
import sys
from pathlib import Path

from features_test import Failure, Run


def case_options(doc, cases=()):
    """The command line of such a test: CASE, where there are several, and --build DIR."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if cases:
        parser.add_argument("case", choices=cases)
    parser.add_argument("--build", type=Path, default=Run.SOURCE.parents[1] / "build")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def run_case(run, name, case):
    """Runs case(run), then ends what it started and removes its folder. A failure ends the test with what was printed."""
    try:
        case(run)
        print("ok")
    except Failure as failure:
        text = "".join((run.work / n).read_text(errors="replace") for n in ("out", "err", "restore.err") if (run.work / n).exists())
        sys.exit(f"FAILED {name}: {failure}\n{text}")
    finally:
        for process in run.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(run.work, ignore_errors=True)
