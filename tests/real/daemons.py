"""More servers as Debian has them, for real_test.py: caches, brokers, proxies, name servers. See servers.py for a round."""
import re
import socket
import struct
import subprocess
from pathlib import Path

from servers import Server, WebServer, ask, found, free_port, workers_user


def name_question(name):
    """A query of the domain name system for the address of `name`."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", 0x1234, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)


def address_of(name, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect(("127.0.0.1", port))
        s.send(name_question(name))
        answer = s.recv(512)
    if struct.unpack(">H", answer[6:8])[0] != 1:
        raise OSError(f"no answer of one address: {answer!r}")
    return socket.inet_ntoa(answer[-4:])


class Apache(WebServer):
    own_signal = True
    PROGRAMS = ("apache2",)

    def configuration(self):
        user = "User {}\nGroup {}".format(*workers_user().split()) if self.session.user is None else ""
        modules = "/usr/lib/apache2/modules"
        return f"""ServerRoot {self.folder}
ServerName 127.0.0.1
Listen 127.0.0.1:{self.port}
PidFile {self.folder}/pid
DefaultRuntimeDir {self.folder}
Mutex file:{self.folder}
ErrorLog {self.folder}/error.log
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
DocumentRoot {self.folder}
StartServers 2
{user}
"""

    def command(self):
        return [self.program, "-d", self.folder, "-f", self.folder / "conf", "-DFOREGROUND"]


class Lighttpd(WebServer):
    """Two workers; its configuration starts no master that gives up root's rights."""

    PROGRAMS = ("lighttpd",)

    def configuration(self):
        return f"""server.document-root = "{self.folder}"
server.port = {self.port}
server.bind = "127.0.0.1"
server.errorlog = "{self.folder}/error.log"
server.max-worker = 2
"""

    def command(self):
        return [self.program, "-D", "-f", self.folder / "conf"]


class Varnish(WebServer):
    """A manager and a worker that share a folder of mapped files; the page is one of the worker's own."""

    PROGRAMS = ("varnishd",)

    def configuration(self):
        page = (self.folder / "page").read_text()
        return f'vcl 4.1; backend none none; sub vcl_recv {{ return (synth(200)); }} sub vcl_synth {{ set resp.body = {{"{page}"}}; return (deliver); }}\n'

    def command(self):
        jail = ["-j", "none"]
        return [self.program, *jail, "-F", "-n", self.folder / "varnish", "-a", f"127.0.0.1:{self.port}", "-f", self.folder / "conf", "-s", "malloc,16m"]

    def options(self):
        return [f"--files-in-snapshot={self.folder}"]  # the worker writes its counters and its log into mapped files


class HaProxy(Server):
    """A master and a worker with two threads that counts requests in a table."""

    own_signal = True

    def prepare(self):
        self.program = found("haproxy")
        self.port = free_port()
        self.socket = self.folder / "socket"
        (self.folder / "conf").write_text(f"""global
  nbthread 2
  insecure-fork-wanted
  stats socket {self.socket} level admin
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
backend counted
  stick-table type integer size 10 expire 1d store http_req_cnt
frontend web
  bind 127.0.0.1:{self.port}
  http-request track-sc0 int(1) table counted
  http-request return status 200 content-type text/plain string "served"
""")

    def command(self):
        return [self.program, "-W", "-db", "-f", self.folder / "conf"]

    def work(self):
        answer = ask(("127.0.0.1", self.port), b"GET / HTTP/1.0\r\n\r\n", lambda _: False)
        if not answer.endswith(b"served"):
            raise OSError(f"another answer: {answer[:100]}")
        self.told += 1

    def known(self):
        table = ask(str(self.socket), b"show table counted\n", lambda _: False, socket.AF_UNIX).decode()
        count = re.search(r"http_req_cnt=(\d+)", table)
        return int(count[1]) if count else 0


class Memcached(Server):
    """Four threads, and a counter in its memory."""

    own_signal = True

    def prepare(self):
        self.program = found("memcached")
        self.port = free_port()

    def command(self):
        return [self.program, "-l", "127.0.0.1", "-p", self.port, "-U", "0", *(["-u", "root"] if self.session.user is None else [])]

    def say(self, line):
        return ask(("127.0.0.1", self.port), line + b"\r\n", lambda answer: answer.endswith(b"\r\n")).decode()

    def work(self):
        if not self.told:
            self.say(b"set n 0 0 1\r\n0")
        self.told += 1
        if int(self.say(b"incr n 1")) != self.told:
            raise OSError("it counts otherwise")

    def known(self):
        value = self.say(b"gets n")
        return int(value.split("\r\n")[1]) if value.startswith("VALUE") else 0


class Beanstalkd(Server):
    own_signal = True

    def prepare(self):
        self.program = found("beanstalkd")
        self.port = free_port()

    def command(self):
        return [self.program, "-l", "127.0.0.1", "-p", self.port]

    def work(self):
        self.told += 1
        answer = ask(("127.0.0.1", self.port), b"put 0 0 60 5\r\nhello\r\n", lambda answer: answer.endswith(b"\r\n"))
        if not answer.startswith(b"INSERTED"):
            raise OSError(f"it takes no job: {answer!r}")

    def known(self):
        stats = ask(("127.0.0.1", self.port), b"stats-tube default\r\n", lambda answer: answer.endswith(b"\r\n") and b"pause" in answer).decode()
        return int(re.search(r"current-jobs-ready: (\d+)", stats)[1])


class Mosquitto(Server):
    """A broker that keeps the last message of a topic."""

    def prepare(self):
        self.program = found("mosquitto")
        self.port = free_port()
        self.publish, self.subscribe = found("mosquitto_pub"), found("mosquitto_sub")
        user = "user root\n" if self.session.user is None else ""
        (self.folder / "conf").write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{user}")

    def command(self):
        return [self.program, "-c", self.folder / "conf"]

    def talk(self, program, *words):
        done = self.client([program, "-h", "127.0.0.1", "-p", self.port, "-t", "known", *words])
        if done.returncode not in (0, 27):  # 27: nothing came in time
            raise OSError(done.stderr.strip())
        return done.stdout

    def work(self):
        self.told += 1
        self.talk(self.publish, "-r", "-q", "1", "-m", self.told)

    def known(self):
        return int(self.talk(self.subscribe, "-C", "1", "-W", "2") or 0)


class Unbound(Server):
    """A name server with two threads, to which names are added while it runs."""

    def prepare(self):
        self.program, self.control = found("unbound"), found("unbound-control")
        self.port = free_port()
        (self.folder / "conf").write_text(f"""server:
  interface: 127.0.0.1
  port: {self.port}
  num-threads: 2
  username: ""
  chroot: ""
  directory: "{self.folder}"
  pidfile: "{self.folder}/pid"
  use-syslog: no
  local-zone: "known." static
remote-control:
  control-enable: yes
  control-interface: {self.folder}/control
  control-use-cert: no
""")

    def command(self):
        return [self.program, "-d", "-c", self.folder / "conf"]

    def work(self):
        self.told += 1
        done = self.client([self.control, "-c", self.folder / "conf", "local_data", f"n{self.told}.known. A 10.0.0.{self.told % 250}"])
        if done.returncode:
            raise OSError(done.stdout + done.stderr)

    def known(self):
        done = self.client([self.control, "-c", self.folder / "conf", "list_local_data"])
        if done.returncode:
            raise OSError(done.stdout + done.stderr)
        names = re.findall(r"^n(\d+)\.known\..*\sA\s", done.stdout, re.M)
        if names and address_of(f"n{len(names)}.known", self.port) != f"10.0.0.{len(names) % 250}":
            raise OSError("another address")
        return len(names)


class Dnsmasq(Server):
    """A name server. It remembers nothing: the answers must stay right."""

    own_signal = True

    def prepare(self):
        self.program = found("dnsmasq")
        self.port = free_port()

    def command(self):
        return [self.program, "-k", "-C", "/dev/null", "-x", self.folder / "pid", "--no-resolv", "--no-hosts", f"--port={self.port}", "--listen-address=127.0.0.1",
                "--bind-interfaces", "--address=/known/10.1.2.3", *(["--user=root"] if self.session.user is None else [])]

    def known(self):
        if address_of("any.known", self.port) != "10.1.2.3":
            raise OSError("another address")
        return self.told


class OpenSsh(Server):
    """A login for each question; its children are over at the snapshot, the listener must go on to give birth to them."""

    def prepare(self):
        self.program, self.ssh = found("sshd"), found("ssh")
        self.port = free_port()
        for name in ("host", "key"):
            done = self.client([found("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name])
            if done.returncode:
                raise OSError(done.stderr)
        (self.folder / "conf").write_text(f"""Port {self.port}
ListenAddress 127.0.0.1
HostKey {self.folder}/host
PidFile {self.folder}/pid
AuthorizedKeysFile {self.folder}/key.pub
StrictModes no
UsePAM no
""")
        if self.session.user is None:
            Path("/run/sshd").mkdir(exist_ok=True)

    needs_user = False  # a user's own sshd lets only that user in, and nobody has no shell

    def command(self):
        return [self.program, "-D", "-e", "-f", self.folder / "conf"]

    def known(self):
        try:
            done = self.client([self.ssh, "-i", self.folder / "key", "-p", self.port, "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={self.folder}/hosts",
                                "-o", "BatchMode=yes", "root@127.0.0.1", "echo $((6 * 7))"])
        except subprocess.TimeoutExpired:
            raise OSError("it lets nobody in") from None
        if done.stdout != "42\n":
            raise OSError(done.stdout + done.stderr)
        return self.told


class Etcd(Server):
    """A store of keys that writes its log and a mapped database in place."""

    in_place = True

    def prepare(self):
        self.program, self.control = found("etcd"), found("etcdctl")
        self.port, self.peers = free_port(), free_port()

    def command(self):
        url, peers = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peers}"
        return [self.program, "--data-dir", self.folder / "data", "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers,
                "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]

    def talk(self, *words):
        done = self.client(["env", "ETCDCTL_API=3", self.control, "--endpoints", f"127.0.0.1:{self.port}", *words])
        if done.returncode:
            raise OSError(done.stderr.strip()[-200:])
        return done.stdout

    def work(self):
        self.told += 1
        self.talk("put", "known", self.told)

    def known(self):
        return int((self.talk("get", "known", "--print-value-only") or "0").strip() or 0)


DAEMONS = {"apache": Apache, "lighttpd": Lighttpd, "varnish": Varnish, "haproxy": HaProxy, "memcached": Memcached, "beanstalkd": Beanstalkd, "mosquitto": Mosquitto,
           "unbound": Unbound, "dnsmasq": Dnsmasq, "sshd": OpenSsh, "etcd": Etcd}
