#!/usr/bin/env python3
"""Redis, memcached and PostgreSQL: what is stored is there, whichever side carries whom, beside children that fork and die."""

import os
import signal
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from long_run import LONG  # noqa: E402
from ports import free_port  # noqa: E402
from programs.base import LIMIT, SIDES, Programs, wait_until, which  # noqa: E402

ASKS = "40000" if LONG else "10000"

# Many connections at once, each of which stores and gets values of many sizes by memcached's text protocol.
CACHE = r"""
import random, socket, sys
port, rnd = int(sys.argv[1]), random.Random(27)
conns = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
files = [c.makefile("rb") for c in conns]
values = {}
for turn in range(20):
    for i, c in enumerate(conns):
        key = f"{sys.argv[2]}-{i}-{turn}"
        values[key] = rnd.randbytes(rnd.choice((1, 100, 5000, 200000)))
        c.sendall(b"set %s 0 0 %d\r\n" % (key.encode(), len(values[key])) + values[key] + b"\r\n")
    for f in files:
        line = f.readline()
        assert line == b"STORED\r\n", line
for n, (key, value) in enumerate(values.items()):
    i = n % len(conns)
    conns[i].sendall(b"get %s\r\n" % key.encode())
    head = files[i].readline().split()
    assert head[:2] == [b"VALUE", key.encode()], head
    assert files[i].read(int(head[3]) + 7) == value + b"\r\nEND\r\n"
print(len(values))
"""


class Redis(Programs):
    def setUp(self):
        super().setUp()
        self.program = which("redis-server")
        which("redis-cli")
        which("redis-benchmark")

    def redis(self, shim, port=None, *more):
        os.makedirs(self.path(f"redis-{port or self.port}"), exist_ok=True)
        return self.serve_at(port or self.port, self.program, "--port", str(port or self.port), "--bind", "127.0.0.1", "--save", "",
                             "--dir", self.path(f"redis-{port or self.port}"), *more, shim=shim)

    def ask(self, shim, *what, port=None):
        return self.client("redis-cli", "-h", "127.0.0.1", "-p", str(port or self.port), *what, shim=shim)[0].decode().strip()

    def info(self, shim, port=None):
        rows = self.ask(shim, "info", port=port).splitlines()
        return dict(row.strip().split(":", 1) for row in rows if ":" in row)

    def fill(self, shim):
        self.ask(shim, "eval", "for i = 1, 2000 do redis.call('set', 'k' .. i, string.rep(i, 100)) end", "0")

    def test_saves_beside_its_clients(self):
        """BGSAVE: the child has all connections and closes them, which is nothing to the clients."""
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                s = self.redis(server)
                self.fill(client)
                with self.beside("benchmark", "redis-benchmark", "-p", str(self.port), "-c", "20", "-n", ASKS, "-t", "get,set", "-q",
                                 shim=client) as benchmark:
                    saved = None
                    for _ in range(3):
                        self.assertIn("saving started", self.ask(client, "bgsave"))
                        saved = wait_until("the child's end", lambda: (i := self.info(client))["rdb_bgsave_in_progress"] == "0" and i)
                        self.assertEqual(saved["rdb_last_bgsave_status"], "ok")
                    self.assertEqual(benchmark.wait(LIMIT), 0, self.read("benchmark"))
                self.assertEqual(self.ask(client, "get", "k1999"), "1999" * 100)
                s.terminate()
                s.wait(LIMIT)
                self.redis(server)                      # from what the child wrote
                self.assertEqual(self.ask(client, "get", "k2000"), "2000" * 100)

    def test_replicates(self):
        """The whole of it at first, from a forked child, then each change; and again after the connection has broken."""
        for first, second in SIDES:
            with self.subTest(first=first, second=second):
                self.port, other = free_port(), free_port()
                self.redis(first)
                self.fill(first)
                self.redis(second, other, "--replicaof", "127.0.0.1", str(self.port))
                for step in ("whole", "change", "broken"):
                    if step == "broken":
                        self.ask(first, "client", "kill", "type", "replica")
                    self.ask(first, "set", "step", step)
                    wait_until(step, lambda s=step: self.ask(second, "get", "step", port=other) == s)
                self.assertEqual(self.ask(second, "get", "k77", port=other), "77" * 100)
                self.assertEqual(self.info(second, other)["master_link_status"], "up")


class Memcached(Programs):
    def test_many_connections(self):
        which("memcached")
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                self.serve(which("memcached"), *(("-u", "nobody") if os.geteuid() == 0 else ()), "-l", "127.0.0.1", "-p", str(self.port),
                           "-U", "0", "-t", "3", shim=server)
                for who in "ab":
                    self.assertEqual(self.client(sys.executable, "-c", CACHE, str(self.port), who, shim=client)[0], b"800\n")


class Postgres(Programs):
    """A process for each connection."""

    def setUp(self):
        super().setUp()
        for program in ("postgres", "initdb", "psql", "pgbench", "setpriv"):
            which(program)
        os.mkdir(self.path("db"))
        self.user = ()
        if os.geteuid() == 0:                   # it never is root, nor are its clients: they share an unetd
            os.chown(self.path("db"), 65533, 65534)
            self.user = (*self.with_somebody(), "setpriv", "--reuid=65533", "--regid=65534", "--clear-groups")
        self.starts = 0
        subprocess.run(self.by_user(False, which("initdb"), "-D", self.path("db"), "-U", "postgres", "-A", "trust", "--no-sync"),
                       env=self.env, stdout=subprocess.DEVNULL, check=True, timeout=LIMIT, cwd="/")

    def by_user(self, shim, *argv):
        said = [f"{k}={v}" for k, v in self.shimmed(shim).items() if k in ("LD_PRELOAD", "UNET_LOG")]
        return *self.user, "env", *said, *argv

    def postgres(self, shim):
        s = self.serve(*self.by_user(shim, which("postgres"), "-D", self.path("db"), "-p", str(self.port), "-k", "",
                                     "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "lc_messages=C",
                                     "-c", "max_connections=120"), shim=False)
        self.is_ready()
        return s

    def is_ready(self):
        """It listens before it has started up, and refuses clients until then."""
        self.starts += 1
        wait_until("postgres is ready", lambda: self.read("log").count("ready to accept connections") >= self.starts)

    def asker(self, shim, program, *what):
        return self.by_user(shim, program, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", *what)

    def ask(self, shim, text):
        out, err = self.client(*self.asker(shim, "psql", "-At", "-c", text), shim=False)
        return out.decode().strip(), err

    def crowd(self, shim):
        out, err = self.client(*self.asker(shim, "pgbench", "-n", "-S", "-c", "100", "-j", "4", "-t", "10", "postgres"), shim=False)
        self.assertIn(b"number of transactions actually processed: 1000/1000", out, err)

    def crash(self, shim):
        """kill -9 of a backend in the middle of its work: all others are ended, and there is a database again."""
        sleeps = ("-c", "select pg_sleep(1000)")
        with self.beside("first", *self.asker(shim, "psql", "-At", "-c", "select pg_backend_pid()", *sleeps), shim=False) as first, \
                self.beside("other", *self.asker(shim, "psql", *sleeps), shim=False) as other:
            pid = int(wait_until("its number", lambda: "\n" in self.read("first") and self.read("first").split()[0]))
            wait_until("both", lambda: self.ask(shim, "select count(*) from pg_stat_activity where wait_event = 'PgSleep'")[0] == "2")
            os.kill(pid, signal.SIGKILL)
            self.assertNotEqual(first.wait(LIMIT), 0)
            self.assertNotEqual(other.wait(LIMIT), 0)
        self.is_ready()

    def stop_it(self, s):
        s.send_signal(signal.SIGINT)
        self.assertEqual(s.wait(LIMIT), 0, self.read("log"))

    def test_a_crowd_a_crash_and_a_restart(self):
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                s = self.postgres(server)
                if self.starts == 1:
                    self.client(*self.asker(client, "pgbench", "-i", "-q", "-s", "1", "postgres"), shim=False)
                self.crowd(client)
                self.crash(client)
                self.crowd(client)
                self.stop_it(s)
                s = self.postgres(server)
                rows, err = self.ask(client, "select count(*) from pgbench_accounts")
                self.assertEqual(rows, "100000")
                self.assert_ours(err, (server, client))
                self.stop_it(s)


if __name__ == "__main__":
    unittest.main(verbosity=2)
