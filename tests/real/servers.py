"""Servers that everybody knows, for real_test.py: how each is started, asked and told what to remember.

A round does some work, takes a snapshot, does some work that the kill then loses, kills every process of the server, restores
it, and asks whether it knows exactly what it knew at the snapshot. Servers that overwrite files in place are stopped by the
snapshot instead: what they did to those files afterwards could not be taken back.
"""
import grp
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from harness import Failure, is_taken

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Absent(Exception):
    """The server is not on this machine."""


def found(*names):
    for name in names:
        path = shutil.which(name, path=PATH)
        if path:
            return path
    raise Absent(f"no {names[0]}")


def workers_user():
    """User and group of the workers that root starts."""
    return f"nobody {grp.getgrgid(pwd.getpwnam('nobody').pw_gid).gr_name}"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def descendants(pid):
    """The process and all that it has started, as they are now."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rsplit(") ", 1)[1].split()
        except (OSError, IndexError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found_now, left = [], [pid]
    while left:
        one = left.pop()
        found_now.append(one)
        left += parents.get(one, [])
    return found_now


def kill_all(process, pid):
    for one in descendants(pid):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait(30)


def ask(address, question, is_whole, kind=socket.AF_INET):
    """Sends one question by a connection of its own; the answer, which ends with the connection or when it `is_whole`."""
    with socket.socket(kind) as s:
        s.settimeout(5)
        s.connect(address)
        s.sendall(question)
        answer = b""
        while not is_whole(answer):
            more = s.recv(65536)
            if not more:
                break
            answer += more
        return answer


class Server:
    in_place = False  # it overwrites its files
    own_signal = False  # SIGUSR1 is its own
    needs_user = None  # True: refuses to run as root; False: only as root

    def __init__(self, session):
        self.session = session
        self.folder = session.work / "server"
        self.folder.mkdir()
        self.told = 0  # how much work it knows of
        if session.user is not None:
            os.chown(self.folder, session.user, session.user)

    def client(self, command, **options):
        """A program of the server's own, run as the same user, without gpuckpt."""
        user = {"user": self.session.user, "group": self.session.user, "extra_groups": []} if self.session.user is not None else {}
        return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=60, cwd=self.folder,
                              env={"PATH": PATH, "HOME": str(self.folder)}, **user, **options)

    def prepare(self):
        """Before the first start."""

    def options(self):
        """Of `gpuckpt run`."""
        return []

    def work(self):
        """One piece of work, remembered by the server where it remembers anything."""

    def known(self):
        """How much work the server knows of; raises OSError while it does not answer."""

    def wait(self, process):
        begin = time.monotonic()
        while True:
            try:
                return self.known()
            except (OSError, ValueError) as why:
                if process.poll() is not None:
                    raise Failure(f"ended with {process.returncode}: {self.session.errors('out')} {self.session.errors('restore')}") from None
                if time.monotonic() - begin > 30:
                    raise Failure(f"does not answer: {why}; {self.session.errors('restore')}") from None
                time.sleep(0.05)


class WebServer(Server):
    """Answers with a page. It remembers nothing but its configuration: the answers must stay right."""

    def prepare(self):
        self.program = found(*self.PROGRAMS)
        self.port = free_port()
        (self.folder / "page").write_text("".join(f"line {i}\n" for i in range(5000)))
        (self.folder / "conf").write_text(self.configuration())

    def work(self):
        page = (self.folder / "page").read_bytes()
        answer = ask(("127.0.0.1", self.port), b"GET /page HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", lambda _: False)
        if not answer.endswith(page):
            raise OSError(f"{len(answer)} bytes, not the page: {answer[:100]}")

    def known(self):
        for _ in range(10):
            self.work()
        return self.told


class Nginx(WebServer):
    """A master and two workers, which as root are another user's."""

    PROGRAMS = ("nginx",)

    def configuration(self):
        user = f"user {workers_user()};" if self.session.user is None else ""
        return f"""daemon off; master_process on; worker_processes 2; {user} pid {self.folder}/pid;
error_log {self.folder}/error.log;
events {{ worker_connections 64; }}
http {{ access_log {self.folder}/access.log; client_body_temp_path {self.folder}/body; proxy_temp_path {self.folder}/proxy;
fastcgi_temp_path {self.folder}/fcgi; uwsgi_temp_path {self.folder}/uwsgi; scgi_temp_path {self.folder}/scgi;
server {{ listen 127.0.0.1:{self.port}; root {self.folder}; }} }}
"""

    def command(self):
        return [self.program, "-p", self.folder, "-c", self.folder / "conf"]


class PhpFpm(Server):
    """A master and two workers that compute, as root as another user. They remember nothing: the answers must stay right."""

    def prepare(self):
        self.program = found("php-fpm", "php-fpm8.2", "php-fpm8.3", "php-fpm8.4")
        self.socket = self.folder / "socket"
        (self.folder / "sum.php").write_text("""<?php
$sum = 0;
for ($i = 0; $i < 20000; $i++) $sum = ($sum * 31 + $i) % 1000003;
echo 'sum ', $sum, ' of ', $_GET['n'], '.';
""")
        user = "user = {}\ngroup = {}".format(*workers_user().split()) if self.session.user is None else ""
        (self.folder / "fpm.conf").write_text(f"""[global]
daemonize = no
error_log = {self.folder}/error.log
[www]
{user}
listen = {self.socket}
pm = static
pm.max_children = 2
""")

    def command(self):
        return [self.program, "-n", "-F", "-y", self.folder / "fpm.conf", *(["-R"] if self.session.user is None else [])]

    def ask(self, query):
        """One request of FastCGI."""
        def record(kind, body):
            return bytes([1, kind, 0, 1]) + len(body).to_bytes(2, "big") + b"\0\0" + body

        values = {"SCRIPT_FILENAME": str(self.folder / "sum.php"), "REQUEST_METHOD": "GET", "QUERY_STRING": query}
        pairs = b"".join(bytes([len(k), len(v)]) + k.encode() + v.encode() for k, v in values.items())
        question = record(1, b"\0\1\0\0\0\0\0\0") + record(4, pairs) + record(4, b"") + record(5, b"")
        return ask(str(self.socket), question, lambda _: False, socket.AF_UNIX)

    def work(self):
        total = 0
        for i in range(20000):
            total = (total * 31 + i) % 1000003
        answer = self.ask(f"n={self.told}")
        if f"sum {total} of {self.told}.".encode() not in answer:
            raise OSError(f"another answer: {answer[:200]}")

    def known(self):
        for _ in range(4):
            self.work()
        return self.told


class PostgreSQL(Server):
    in_place = True
    needs_user = True

    def prepare(self):
        binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not binaries:
            raise Absent("no postgres")
        self.bin = binaries[-1].parent
        self.data = self.folder / "data"
        done = self.client([self.bin / "initdb", "-D", self.data, "-A", "trust", "-U", "test", "--no-sync"])
        if done.returncode != 0:
            raise Failure(f"initdb: {done.stderr}")
        self.port = free_port()

    def command(self):
        return [self.bin / "postgres", "-D", self.data, "-k", self.folder, "-p", self.port, "-c", "listen_addresses=",
                "-c", "shared_buffers=8MB", "-c", "huge_pages=off"]  # the pool is other tests' (hugetlb_test.py)

    def sql(self, text):
        done = self.client([self.bin / "psql", "-h", self.folder, "-p", self.port, "-U", "test", "-Atq", "-d", "postgres", "-c", text])
        if done.returncode != 0:
            raise OSError(done.stderr.strip())
        return done.stdout.strip()

    def work(self):
        self.sql("create table if not exists t(n int primary key, s text); insert into t select count(*), md5(count(*)::text) from t; "
                 "update t set s = md5(s) where n % 3 = 0")
        self.told += 1

    def known(self):
        try:
            return int(self.sql("select count(*) from t"))
        except OSError as why:
            if "does not exist" in str(why):
                return 0
            raise


class PgBench(PostgreSQL):
    """PostgreSQL while pgbench's clients change four tables in each transaction. Every server process is killed, and the load that
    came after the snapshot is lost: with --files-in-snapshot the sums of all four tables are equal, whatever the moment was."""
    in_place = False
    # pgbench is outside of the job, and its connections are by TCP.
    may_tell = ("a restore finds it reset", "a restore finds them reset")

    def prepare(self):
        super().prepare()
        if not (self.bin / "pgbench").exists():
            raise Absent("no pgbench")
        self.load = None

    def options(self):
        return [f"--files-in-snapshot={self.data}"]

    def command(self):
        words = super().command()
        return [w if w != "listen_addresses=" else "listen_addresses=127.0.0.1" for w in words]

    def pgbench(self, *words):
        return [str(w) for w in (self.bin / "pgbench", "-h", "127.0.0.1", "-p", self.port, "-U", "test", *words, "postgres")]

    def initialise(self):
        done = self.client(self.pgbench("-i", "-q", "-s", 1))
        if done.returncode != 0:
            raise Failure(f"pgbench -i: {done.stderr}")

    def start_load(self):
        user = {"user": self.session.user, "group": self.session.user, "extra_groups": []} if self.session.user is not None else {}
        self.load = subprocess.Popen(self.pgbench("-n", "-c", 4, "-T", 300), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.folder, **user)

    def end_load(self):
        if self.load and self.load.poll() is None:
            self.load.kill()
        if self.load:
            self.load.wait(30)

    def transactions(self):
        return int(self.sql("select count(*) from pgbench_history"))

    def known(self):
        return self.sql("select 1")

    def check(self, at_least, at_most, when):
        sums = self.sql("select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), "
                        "(select sum(tbalance) from pgbench_tellers), (select coalesce(sum(delta), 0) from pgbench_history)").split("|")
        count = self.transactions()
        if len(set(sums)) != 1 or not at_least <= count <= at_most:
            raise Failure(f"{when}: the sums are {sums} after {count} transactions ({at_least} to {at_most} at the snapshot)")


class MariaDB(Server):
    in_place = True

    def prepare(self):
        self.program = found("mariadbd", "mysqld")
        self.data = self.folder / "data"
        self.socket = self.folder / "socket"
        self.user = ["--user=root"] if self.session.user is None else []
        done = self.client([found("mariadb-install-db", "mysql_install_db"), "--no-defaults", f"--datadir={self.data}",
                            "--auth-root-authentication-method=normal", "--skip-test-db", *self.user])
        if done.returncode != 0:
            raise Failure(f"mariadb-install-db: {done.stdout} {done.stderr}")

    def command(self):
        return [self.program, "--no-defaults", f"--datadir={self.data}", f"--socket={self.socket}", "--skip-networking",
                f"--pid-file={self.folder}/pid", "--innodb-buffer-pool-size=8M", "--innodb-use-native-aio=0", *self.user]

    def sql(self, text):
        done = self.client([found("mariadb", "mysql"), "--no-defaults", f"--socket={self.socket}", "-u", "root", "-N", "-e", text])
        if done.returncode != 0:
            raise OSError(done.stderr.strip())
        return done.stdout.strip()

    def work(self):
        self.sql("create database if not exists d; create table if not exists d.t(n int primary key, s text); "
                 "insert into d.t select count(*), md5(count(*)) from d.t; update d.t set s = md5(s) where n % 3 = 0")
        self.told += 1

    def known(self):
        try:
            return int(self.sql("select count(*) from d.t"))
        except OSError as why:
            if "Unknown database" in str(why) or "doesn't exist" in str(why):
                return 0
            raise


class Tmux(Server):
    """The server in the foreground; a client opens a session whose shell counts on its terminal."""

    def prepare(self):
        self.program = found("tmux")
        self.socket = self.folder / "socket"
        (self.folder / "conf").write_text("set -g default-shell /bin/sh\n")  # nobody's own ends at once

    def command(self):
        return [self.program, "-f", self.folder / "conf", "-S", self.socket, "-D"]

    def tmux(self, *words):
        done = self.client([self.program, "-S", self.socket, *words])
        if done.returncode != 0:
            raise OSError(done.stderr.strip())
        return done.stdout

    def wait(self, process):
        begin = time.monotonic()
        while not self.socket.exists():
            if time.monotonic() - begin > 30:
                raise Failure("tmux makes no socket")
            time.sleep(0.05)
        try:
            self.tmux("has-session", "-t", "s")
        except OSError:
            self.tmux("new-session", "-d", "-s", "s", "-x", "80", "-y", "24", "n=0; while read line; do n=$((n+1)); echo known $n; done")
        return super().wait(process)

    def work(self):
        self.tmux("send-keys", "-t", "s", "x", "Enter")
        self.told += 1
        begin = time.monotonic()
        while self.known() != self.told:
            if time.monotonic() - begin > 20:
                raise Failure(f"{self.told} lines were typed, the shell knows of {self.known()}")
            time.sleep(0.02)

    def known(self):
        counted = [line.split()[1] for line in self.tmux("capture-pane", "-p", "-t", "s").splitlines() if line.startswith("known ")]
        return int(counted[-1]) if counted else 0


SERVERS = {"nginx": Nginx, "php_fpm": PhpFpm, "postgres": PostgreSQL, "mariadb": MariaDB, "tmux": Tmux}


def serve(session, server, count):
    """`count` rounds; how many were right."""
    server.prepare()
    process = session.run(server.command(), options=[*server.options(), *(["--signal", "none"] if server.own_signal else [])], GPUCKPT_USERS="trust")
    pid, choice = process.pid, session.random
    server.wait(process)
    for number in range(1, count + 1):
        for _ in range(choice.randint(2, 6)):
            server.work()
        if server.in_place:
            done = session.cli("checkpoint", pid, "--stop", check=False, timeout=120)
            if not is_taken(done):
                raise Failure(f"checkpoint --stop: exit {done.returncode}: {done.stderr.strip()}")
            session.finish(process)
            snapshot, remembered = "latest", server.told
        else:
            snapshot, remembered = session.snapshot(process, "cli" if server.own_signal else choice.choice(["signal", "cli"]), pid), server.told
            for _ in range(choice.randint(0, 4)):
                server.work()
            kill_all(process, pid)
        process = session.restore(snapshot)
        pid = process.restored_pid
        server.told = remembered
        knows = server.wait(process)
        if knows != remembered:
            raise Failure(f"round {number}: it knows of {knows} pieces of work, not of {remembered}")
    server.work()
    kill_all(process, process.pid)
    return count


def serve_pgbench(session, server, count):
    """`count` rounds, each at a random moment of the load; in the end a server of its own reads what is on the disk."""
    server.prepare()
    process = session.run(server.command(), options=server.options())
    pid, choice = process.pid, session.random
    server.wait(process)
    server.initialise()
    try:
        for number in range(1, count + 1):
            server.start_load()
            time.sleep(0.2 + choice.random())
            before = server.transactions()
            done = session.cli("checkpoint", pid, check=False, timeout=120)
            if not is_taken(done, server.may_tell):
                raise Failure(f"round {number}: checkpoint: exit {done.returncode}: {done.stderr.strip()}")
            after = server.transactions()
            time.sleep(choice.random() * 2)
            lost = server.transactions()
            kill_all(process, pid)
            server.end_load()
            process = session.restore()
            pid = process.restored_pid
            server.wait(process)
            server.check(before, after, f"round {number}")
            print(f"round {number}: {before} to {after} transactions at the snapshot, {lost} at the kill", flush=True)
        os.kill(pid, signal.SIGINT)  # PostgreSQL's fast shutdown
        session.finish(process)
        process = session.popen(server.command(), session.work / "second")
        server.wait(process)
        server.check(before, after, "a server of its own")
        kill_all(process, process.pid)
    finally:
        server.end_load()
    return count
