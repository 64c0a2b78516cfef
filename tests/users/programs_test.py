#!/usr/bin/env python3
"""Servers that begin as root and give up root, over the shim and not, with clients of either kind: they do what they are for, and the
shim says what each of their sockets got."""

import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from ports import free_port  # noqa: E402
from programs.base import BUILD, DATA, GAVE_UP, LIMIT, SHIM, SUM, Programs, wait_until, which  # noqa: E402

GATE = os.path.join(BUILD, "tests", "users", "libusers_gate.so")

# Connects until its standard input ends, or somebody is lost. Before the first listener there is nobody.
VISITOR = r"""
import select, socket, sys
socket.setdefaulttimeout(200)
port, content, n = int(sys.argv[1]), open(sys.argv[2], "rb").read(), 0
while not select.select([sys.stdin], [], [], 0)[0]:
    s = socket.socket()
    try:
        s.connect(("127.0.0.1", port))
    except ConnectionRefusedError:
        if n == 0:
            continue
        raise
    if n == 0:
        print("connected", flush=True)
    s.sendall(b"GET /small HTTP/1.0\r\n\r\n")
    got = b""
    while piece := s.recv(65536):
        got += piece
    assert got.endswith(b"\r\n\r\n" + content), got
    s.close()
    n += 1
    if n == 1:
        print("first", flush=True)
print(n)
"""


class Users(Programs):
    server, clients = True, (True, False)       # what is over the shim

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        super().setUp()

    def fetch_by_each(self, url=None):
        for shim in self.clients:
            self.fetch(shim, url)

    def assert_server_said(self, what):
        if self.server:
            self.assert_said(what)


class Http(Users):
    def end(self, pid):
        """One that is not our child."""
        try:
            os.kill(pid, signal.SIGTERM)
            wait_until("its end", lambda: not os.path.exists(f"/proc/{pid}"))
        except ProcessLookupError:
            pass

    def nginx_conf(self, more=""):
        which("nginx")
        self.write("conf", f"""
            {more} user www-data; worker_processes 2; pid {self.path("pid")}; error_log stderr;
            events {{}}
            http {{ access_log off; client_body_temp_path {self.path("t1")}; proxy_temp_path {self.path("t2")};
                   fastcgi_temp_path {self.path("t3")}; uwsgi_temp_path {self.path("t4")}; scgi_temp_path {self.path("t5")};
                   server {{ listen 127.0.0.1:{self.port}; root {self.dir}; }} }}""")

    def test_nginx(self):
        """Reload, and another binary in the place of the first."""
        self.nginx_conf()
        self.serve(which("nginx"), "-c", self.path("conf"), "-p", self.dir, shim=self.server)
        master = int(wait_until("the master", lambda: self.read("pid")))
        self.addCleanup(self.end, master)
        first = self.settled(master)
        self.fetch_by_each()
        self.assert_server_said(GAVE_UP)
        os.kill(master, signal.SIGHUP)
        self.settled(master, first)
        self.fetch_by_each()
        os.kill(master, signal.SIGUSR2)
        second = int(wait_until("the second master", lambda: self.read("pid.oldbin") and self.read("pid")))
        self.addCleanup(self.end, second)
        self.settled(second)
        os.kill(master, signal.SIGQUIT)
        wait_until("the first to end", lambda: not os.path.exists(f"/proc/{master}"))
        self.fetch_by_each()

    def test_nginx_loses_nobody(self):
        """Who connects all the time, while it starts and is told to reload, over the shim and not. Its workers give up root when somebody
        has connected over the fabric."""
        self.nginx_conf("daemon off; master_process on;")
        self.write("small", DATA[:5000])
        with open(self.path("log"), "ab") as log:
            visitors = [subprocess.Popen([sys.executable, "-c", VISITOR, str(self.port), self.path("small")], env=self.shimmed(shim),
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
                        for shim in (True, *self.clients)]
        for v in visitors:
            self.addCleanup(v.kill)
            self.addCleanup(v.stdout.close)
        master = self.serve("env", f"LD_PRELOAD={SHIM if self.server else ''} {GATE}", f"UNET_TEST_GATE={self.path('gate')}",
                            which("nginx"), "-c", self.path("conf"), "-p", self.dir, shim=self.server)
        for line in ("connected\n", "first\n"):
            for v in visitors:
                self.assertEqual(v.stdout.readline(), line, self.read("log"))
            self.write("gate", "")
        for _ in range(5):
            before = self.settled(master.pid)
            master.send_signal(signal.SIGHUP)
            self.settled(master.pid, before)
        for v in visitors:
            v.stdin.close()
        for v in visitors:
            self.assertGreater(int(v.stdout.read() or 0), 0, self.read("log"))
            self.assertEqual(v.wait(LIMIT), 0, self.read("log"))
        self.assert_server_said(GAVE_UP)

    def apache(self, mpm):
        modules = "/usr/lib/apache2/modules"
        program = which("apache2")
        self.write("conf", f"""
            LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
            LoadModule authz_core_module {modules}/mod_authz_core.so
            ServerName localhost
            Listen 127.0.0.1:{self.port}
            PidFile {self.path("pid")}
            DefaultRuntimeDir {self.dir}
            ErrorLog {self.path("errors")}
            User www-data
            Group www-data
            StartServers 2
            DocumentRoot {self.dir}""")
        s = self.serve(program, "-d", self.dir, "-f", self.path("conf"), "-D", "FOREGROUND", shim=self.server)
        first = self.settled(s.pid)
        self.fetch_by_each()
        s.send_signal(signal.SIGUSR1)
        self.settled(s.pid, first)
        self.fetch_by_each()

    def test_apache_prefork(self):
        self.apache("prefork")

    def test_apache_event(self):
        self.apache("event")

    def lighttpd(self, more=""):
        self.write("conf", f"""
            server.document-root = "{self.dir}"
            server.port = {self.port}
            server.bind = "127.0.0.1"
            server.username = "www-data"
            server.groupname = "www-data"
            {more}
            """)
        return self.serve(which("lighttpd"), "-D", "-f", self.path("conf"), shim=self.server)

    def test_lighttpd(self):
        s = self.lighttpd()
        wait_until("it to give up root", lambda: self.nothing_of_roots(s.pid))
        self.fetch_by_each()
        self.assert_server_said(GAVE_UP)

    def test_lighttpd_with_workers(self):
        """Children of one that has given up root accept from its listener; in the place of one that is killed comes another."""
        s = self.lighttpd("server.max-worker = 3")

        def three(but=()):
            return wait_until("three workers", lambda: len(v := self.settled(s.pid, but)) == 3 and v)

        killed = three()[0]
        self.fetch_by_each()
        os.kill(killed, signal.SIGKILL)
        three((killed,))
        for _ in range(3):
            self.fetch_by_each()
        self.assert_server_said(GAVE_UP)

    def test_haproxy(self):
        """Before two servers of Python's, one over the shim; a second one takes its listeners over, and connections go on."""
        backends = free_port(), free_port()
        conf = self.write("conf", f"""
            global
                user nobody
                group nogroup
                stats socket {self.path("admin")} level admin expose-fd listeners
            defaults
                mode http
                timeout connect 60s
                timeout client 60s
                timeout server 60s
            frontend f
                bind 127.0.0.1:{self.port}
                default_backend b
            backend b
                balance roundrobin
                server s0 127.0.0.1:{backends[0]}
                server s1 127.0.0.1:{backends[1]}\n""")
        program = which("haproxy")
        for backend, shim in zip(backends, (True, False)):
            self.serve_at(backend, sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(backend), shim=shim)
        first = self.serve(program, "-db", "-f", conf, shim=self.server)
        wait_until("it to give up root", lambda: self.nothing_of_roots(first.pid))
        for _ in backends:
            self.fetch_by_each()
        self.assert_server_said(GAVE_UP)
        with open(self.path("log"), "ab") as log:
            second = self.start(log, program, "-db", "-f", conf, "-x", self.path("admin"), "-sf", str(first.pid), shim=self.server)
        wait_until("the first to end", lambda: first.poll() is not None)
        for _ in backends:
            self.fetch_by_each()
        self.assertIsNone(second.poll(), self.read("log"))


class OrdinaryHttp(Http):
    """The same servers over the kernel, their clients over the shim."""

    server, clients = False, (True,)


class Ssh(Users):
    """Whose monitor of root's shares each connection with a child that has another user: sshd's, and then the one who came."""

    def setUp(self):
        super().setUp()
        which("sshd")
        which("ssh-keygen")
        os.makedirs("/run/sshd", exist_ok=True)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(key)], check=True, timeout=LIMIT)
        shutil.copy(self.path("user.pub"), self.path("keys"))
        os.mkdir(self.path("home"))
        os.chown(self.path("home"), 65533, 65534)
        self.write("conf", f"""
            ListenAddress 127.0.0.1:{self.port}
            HostKey {self.path("host")}
            AuthorizedKeysFile {self.path("keys")}
            PidFile none
            StrictModes no
            UsePAM no
            PermitRootLogin yes
            LoginGraceTime 0
            MaxStartups 100
            Subsystem sftp internal-sftp""")
        self.options = ["-F", "none", "-i", self.path("user"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                        "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]

    def sshd(self, shim):
        return self.serve(*self.with_somebody(), which("sshd"), "-D", "-e", "-f", self.path("conf"), shim=shim)

    def sessions(self, shim):
        for who in ("somebody", "root"):
            for _ in range(3):
                out, err = self.client("ssh", *self.options, "-p", str(self.port), f"{who}@127.0.0.1",
                                       f"id -un; sha256sum < {self.path('data')}", shim=shim)
                self.assertEqual(out.decode().split()[:2], [who, SUM], err)
        there = self.path("home", "copy")
        self.client("scp", "-q", *self.options, "-P", str(self.port), self.path("data"), f"somebody@127.0.0.1:{there}", shim=shim)
        with open(there, "rb") as f:
            self.assertEqual(f.read(), DATA)
        ssh = " ".join(["ssh", *self.options, "-p", str(self.port)])
        self.client("rsync", "-e", ssh, f"somebody@127.0.0.1:{there}", self.path("back"), shim=shim)
        with open(self.path("back"), "rb") as f:
            self.assertEqual(f.read(), DATA)
        os.remove(there)
        os.remove(self.path("back"))

    def test_both_over_the_shim(self):
        which("rsync")
        self.sshd(True)
        self.sessions(True)
        self.assert_said("a relay carries it")

    def test_one_side_over_the_shim(self):
        which("rsync")
        s = self.sshd(True)
        self.sessions(False)
        s.terminate()
        s.wait(LIMIT)
        self.sshd(False)
        self.sessions(True)


class Ftp(Users):
    def test_vsftpd(self):
        """The child that talks to who has not logged in is nobody, in a namespace of its own; the parent goes on."""
        os.makedirs("/run/vsftpd/empty", exist_ok=True)
        os.mkdir(self.path("pub"))
        shutil.copy(self.path("data"), self.path("pub", "data"))
        os.chmod(self.path("pub"), 0o555)
        conf = self.write("conf", f"""listen=YES
listen_ipv6=NO
listen_address=127.0.0.1
listen_port={self.port}
background=NO
anonymous_enable=YES
local_enable=NO
anon_root={self.path("pub")}
secure_chroot_dir=/run/vsftpd/empty
xferlog_enable=NO
""")
        os.chown(conf, 0, 0)
        self.serve(which("vsftpd"), conf, shim=self.server)
        self.fetch_by_each(f"ftp://127.0.0.1:{self.port}/data")
        self.assert_server_said("ours: came over the fabric")


class OrdinaryFtp(Ftp):
    server, clients = False, (True,)


class Database(Users):
    def test_postgresql(self):
        """It never is root; its children share its listener."""
        for program in ("postgres", "initdb", "psql", "setpriv"):
            which(program)
        os.mkdir(self.path("db"))
        os.chown(self.path("db"), 65533, 65534)
        user = (*self.with_somebody(), "setpriv", "--reuid=65533", "--regid=65534", "--clear-groups")
        subprocess.run([*user, which("initdb"), "-D", self.path("db"), "-U", "postgres", "-A", "trust", "--no-sync"], env=self.env,
                       stdout=subprocess.DEVNULL, check=True, timeout=LIMIT, cwd="/")
        for starts, server in enumerate((True, False), 1):
            s = self.serve(*user, "env", *(f"{k}={v}" for k, v in self.shimmed(server).items() if k in ("LD_PRELOAD", "UNET_LOG")),
                           which("postgres"), "-D", self.path("db"), "-p", str(self.port), "-k", "", "-c", "listen_addresses=127.0.0.1",
                           "-c", "fsync=off", "-c", "lc_messages=C", shim=False)
            # It listens before it has started up, and refuses clients until then.
            wait_until("postgres is ready", lambda n=starts: self.read("log").count("ready to accept connections") >= n)
            for shim in (True, False):
                out, err = self.client("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-At", "-c",
                                       "select sum(x), length(repeat('y', 1000000)) from generate_series(1, 1000) x", shim=shim)
                self.assertEqual(out, b"500500|1000000\n", err + self.read("log"))
            s.send_signal(signal.SIGINT)
            s.wait(LIMIT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
