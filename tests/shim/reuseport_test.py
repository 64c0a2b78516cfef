#!/usr/bin/env python3
"""Programs whose listeners share a port (SO_REUSEPORT): all of them are served, on the fabric as by the kernel."""

import json
import os
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from reuseport import MANY, NGINX, PROGRAM, Shares  # noqa: E402
from shim_test import UNET, Case, need, wait_until  # noqa: E402

HERE = "127.0.0.1"


class Reuseport(Case, Shares):
    def program(self, what, *args, **more):
        return self.run_it(*PROGRAM, what, HERE, str(self.port), *map(str, args), **more)

    def serve(self, what, n):
        s = self.program(what, n)
        self.until_there_are(n)
        return s

    def until_there_are(self, n):
        """So many listeners, on the fabric and in the kernel."""
        wait_until(f"{n} listeners", lambda: self.ours() == self.kernels() == n)

    def ours(self):
        done = self.run_it(UNET, "ss", "--listening", "--json", shim=False)
        rows = json.loads(done.end(ok=None) or "[]")
        return sum(row["local"] == f"{HERE}:{self.port}" for row in rows)

    def status(self, what):
        """Those of the test before may still be there."""
        rows = json.loads(self.run_it(UNET, "status", "--json", shim=False).end(ok=None) or "{}").get(what, [])
        return [row for row in rows if row.get("port", self.port) == self.port]

    def kernels(self):
        with open("/proc/net/tcp", encoding="ascii") as rows:
            fields = [row.split() for row in rows][1:]
        return sum(f[1].endswith(f":{self.port:04X}") and f[3] == "0A" for f in fields)

    def shares(self, what="ask", count=MANY, **more):
        """How many connections each had."""
        c = self.program(what, count, **more)
        shares = json.loads(c.end())
        if c.shim and what != "tell":
            self.assertEqual(c.said("ours"), count)
        return shares

    def test_each_of_one_process_has_its_share(self):
        self.serve("one", 4)
        for shim in (True, False):
            self.assert_spread(self.shares(shim=shim), 4)

    def test_what_is_closed_gets_nothing(self):
        """Nor by the kernel, whose socket unetd has a copy of."""
        self.serve("one", 4)
        gone = set()
        for left in (3, 2, 1):
            gone.add(self.program("leave").end().strip())
            self.until_there_are(left)
            for shim in (True, False):
                shares = self.shares(count=60, shim=shim)
                self.assertFalse(gone & set(shares), shares)
        self.program("leave").end()
        self.until_there_are(0)

    def test_children_that_have_one_each(self):
        s = self.serve("forked", 4)
        pids = wait_until("its children", lambda: s.text().split())
        for shim in (True, False):
            shares = self.shares(shim=shim)
            self.assert_spread(shares, 4)
            self.assertEqual(set(shares), set(pids))
        os.kill(int(pids[1]), signal.SIGKILL)
        self.until_there_are(3)
        for shim in (True, False):
            shares = self.shares(shim=shim)
            self.assertEqual(set(shares), set(pids) - {pids[1]})
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)

    def test_after_an_exec(self):
        self.serve("exec", 4)
        for shim in (True, False):
            self.assert_spread(self.shares(shim=shim), 4)

    def test_with_the_next_unetd(self):
        self.serve("one", 4)
        os.kill(self.status("daemon")[0]["pid"], signal.SIGKILL)
        wait_until("its listeners are known again", lambda: len(self.status("listeners")) == 4)
        gone = self.program("leave").end().strip()
        self.until_there_are(3)
        for shim in (True, False):
            shares = self.shares(shim=shim)
            self.assert_spread(shares, 3)
            self.assertNotIn(gone, shares)

    def test_of_several_processes_each_listener_counts(self):
        """Whose processes began apart, and have a stack each: one with three, one with one."""
        self.serve("one", 3)
        self.program("one", 1)
        self.until_there_are(4)
        self.assert_each_counts(self.shares())

    def test_datagrams_when_the_first_socket_has_closed(self):
        s = self.program("datagrams", 2)
        wait_until("two sockets", lambda: s.said("both") == 2)
        for shim in (True, False):
            self.assertEqual(set(self.shares("tell", 60, shim=shim)), {"0", "1"})
        self.program("drop").end()
        for shim in (True, False):
            self.assertEqual(self.shares("tell", 60, shim=shim), {"1": 60})

    def test_datagrams_go_to_all_processes(self):
        servers = [self.program("datagrams", n) for n in (1, 2)]
        wait_until("three sockets", lambda: sum(s.said("both") for s in servers) == 3)
        self.assertEqual(set(self.shares("tell", 100)), {"0", "1"})

    def test_nginx(self):
        need("nginx")
        where = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, where)
        os.chmod(where, 0o755)
        with open(os.path.join(where, "conf"), "w", encoding="ascii") as f:
            f.write(NGINX.format(dir=where, address=HERE, port=self.port))
        s = self.run_it("nginx", "-c", f.name, "-p", where)
        self.until_there_are(2)
        for shim in (True, False):
            self.assert_spread(self.shares("http", shim=shim), 2)
        s.child.send_signal(signal.SIGTERM)
        s.end(ok=None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
