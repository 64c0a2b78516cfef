#!/usr/bin/env python3
"""What users' programs send by an interface of the system's unetd that they have to themselves: `check` of unet.conf(5)."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402
from lan_test import KERNELS, OURS, PEER, PORT, Lan  # noqa: E402

ALICE = 12001


class Check(Lan):
    def setUp(self):
        self.ours = self.host("a", OURS)
        self.other = self.host("b", KERNELS)
        lan.cable(self.ours, self.other)
        self.other.become_kernels()
        self.serve_peer(self.other, "mirror", PORT)

    def begin(self, check, mode="auto", provider="auto"):
        self.ours.own(f"[interface {lan.IFACE}]\naddress = {OURS}/24\nmode = {mode}\nprovider = {provider}\ncheck = {check}\n")

    def is_checked(self):
        return "send_check" in self.ours.programs_behind("out")

    def how(self):
        return self.seen("if")[0]["how"]

    def refused(self):
        """Frames of the stack that has the interface; None: there is none."""
        rows = self.seen("status")["sockets"]
        return rows[0]["bad_source"] if rows else None

    def one_by(self, user):
        """A program that has the interface until it is stopped."""
        return self.serve_peer(self.ours, "mirror", PORT + 1, user=user)

    def forge(self, user):
        """Forged frames that came, of how many sockets; what was refused."""
        wire = lan.Wire(self.other)
        p = self.ours.run(sys.executable, os.path.join(HERE, "forger.py"), KERNELS, str(PORT), OURS, KERNELS, user=user,
                          stdin=subprocess.PIPE)
        self.ours.until(lambda: p.text() or p.child.poll() is not None, "the forger")
        refused = self.refused()
        p.child.stdin.close()
        sockets = int(p.end().split()[0])
        self.assert_ours(p)
        return len(wire.caught("ether src 02:de:ad:be:ef:01")), sockets, refused

    def test_another_users_frames_are_the_hosts_own(self):
        self.begin("auto")
        came, sockets, refused = self.forge(ALICE)
        self.assertEqual((came, sockets), (0, 1))
        self.assertEqual(refused, 4)
        self.ours.until(lambda: not self.is_checked(), "the interface without a program")

    def test_whose_unetd_it_is_may_send_anything(self):
        self.begin("auto")
        came, sockets, _ = self.forge(None)
        self.assertEqual((came, sockets), (4, 1))

    def test_nothing_that_is_right_is_refused(self):
        """Both ways, opened by either side; datagrams, fragments of them, echoes and groups."""
        self.begin("auto")
        keep = self.one_by(ALICE)
        self.assertTrue(self.is_checked())
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 20).end(), "all\n")
        keep.stop()
        self.exchanged(self.both_ways(self.other, self.ours, 20, port=PORT + 3, user=ALICE), 20)
        keep = self.serve_peer(self.ours, "echo", PORT + 2, kind="u", user=ALICE)
        self.peer(self.other, "ask", OURS, PORT + 2, 1, 1400, 9000, 60000).end()
        for size in (8, 1400):
            self.other.sh(sys.executable, os.path.join(HERE, "echo.py"), OURS, str(size))
        self.assertEqual(self.refused(), 0)
        keep.stop()

    def test_its_link_address_changes(self):
        self.begin("auto")
        keep = self.one_by(ALICE)
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")
        mac = "02:00:00:00:77:01"
        self.ours.ip("link", "set", lan.IFACE, "address", mac)
        self.other.until(lambda: mac in self.other.ip("neigh"), "the new address")
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")
        self.assertTrue(self.is_checked())
        keep.stop()

    def test_what_the_config_file_says(self):
        for check, user, checked in (("yes", None, True), ("no", ALICE, False), ("auto", None, False)):
            self.begin(check)
            keep = self.one_by(user)
            self.assertEqual(self.is_checked(), checked, check)
            keep.stop()
            self.ours.daemon.child.terminate()
            self.ours.daemon.end(ok=None)
            self.assertFalse(self.is_checked())

    def test_what_cannot_be_checked_goes_by_the_bridge(self):
        self.begin("auto", "native")
        keep = self.one_by(ALICE)
        self.assertIn("bridge", self.how())
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")
        keep.stop()

    def test_a_unetd_that_is_killed_leaves_nobody_free(self):
        """Whoever had the interface can send still; and no more than before."""
        self.begin("auto")
        keep = self.one_by(ALICE)
        self.ours.daemon.child.kill()
        self.ours.daemon.end(ok=None)
        self.assertTrue(self.is_checked())
        keep.stop()
        self.ours.start_daemon()
        self.assertEqual(self.forge(ALICE)[0], 0)
        self.ours.daemon.child.terminate()
        self.ours.daemon.end(ok=None)
        self.assertTrue(self.is_checked())      # for there may be sockets from before


if __name__ == "__main__":
    reason = lan.why_not() or lan.missing("setpriv", "dumpcap", "tcpdump")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
