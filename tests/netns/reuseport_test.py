#!/usr/bin/env python3
"""Programs whose listeners share a port (SO_REUSEPORT), reached by an interface: all of them are served."""

import json
import os
import signal
import sys
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.environ["UNET_SOURCE"], "tests", "shim")]
import lan  # noqa: E402
from lan_test import OURS, PORT, Lan  # noqa: E402
from reuseport import MANY, NGINX, PROGRAM, Shares  # noqa: E402

ALICE = 12001


class Reuseport(Lan, Shares):
    def serve(self, what, n, **more):
        """Listens with so many; returns when so many more than before are there."""
        before = self.listening()
        s = self.ours.run(*PROGRAM, what, OURS, str(PORT), str(n), **more)
        self.ours.until(lambda: self.listening() == before + n, f"{n} listeners")
        return s

    def listening(self):
        return sum(row["port"] == PORT for row in self.seen("status").get("listeners", []))

    def shares(self, what="ask"):
        """How many connections each had, of which the kernel here has no listener's address."""
        return json.loads(self.other.run(*PROGRAM, what, OURS, str(PORT), str(MANY)).end())

    def test_each_of_one_process_has_its_share(self):
        s = self.serve("one", 4)
        self.assert_spread(self.shares(), 4)
        self.assertTrue(self.ours.program_on_link())
        gone = self.other.run(*PROGRAM, "leave", OURS, str(PORT)).end().strip()
        self.ours.until(lambda: self.listening() == 3, "that one has closed")
        shares = self.shares()
        self.assert_spread(shares, 3)
        self.assertNotIn(gone, shares)
        self.assertEqual(s.text(1).count("listening on both sides"), 4)

    def test_children_that_have_one_each(self):
        s = self.serve("forked", 4)
        self.assert_spread(self.shares(), 4)
        for pid in s.text().split():
            os.kill(int(pid), signal.SIGKILL)

    def test_of_several_stacks_each_listener_counts(self):
        """By the bridge."""
        self.serve("one", 3, user=ALICE)
        self.serve("one", 1, user=ALICE)
        self.ours.until(lambda: not self.ours.program_on_link(), "the bridge")
        self.assert_each_counts(self.shares())

    def test_nginx(self):
        if lan.missing("nginx"):
            self.skipTest("no nginx here")
        conf = os.path.join(self.ours.dir, "conf")
        with open(conf, "w", encoding="ascii") as f:
            f.write(NGINX.format(dir=self.ours.dir, address=OURS, port=PORT))
        s = self.ours.run("nginx", "-c", conf, "-p", self.ours.dir)
        self.ours.until(lambda: self.listening() == 2, "its listeners")
        self.assert_spread(self.shares("http"), 2)
        s.child.send_signal(signal.SIGTERM)
        s.end(ok=None)


if __name__ == "__main__":
    reason = lan.why_not() or lan.missing("setpriv")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
