#!/usr/bin/env python3
"""What an administrator does to an interface while a connection is on it: it goes on, and new ones are made."""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
from lan_test import KERNELS, OURS, PORT, Lan  # noqa: E402

OTHER = "other0"


class Faults(Lan):
    provider = "auto"

    def setUp(self):
        self.ours = self.host("a", OURS)
        self.other = self.host("b", KERNELS)
        lan.cable(self.ours, self.other)
        self.ours.become_ours(provider=self.provider)
        self.other.become_kernels()

    def set(self, host, *argv, name=lan.IFACE):
        host.ip("link", "set", "dev", name, *argv)
        time.sleep(0.3)                 # unetd is to see each by itself

    def goes_on(self, *steps):
        pair = self.both_ways(self.other, self.ours, 2, 0.02, goes_on=True)
        self.has_come(4)
        for step in steps:
            step()
        self.exchanged(pair, 4, 60)
        self.serve_peer(self.other, "mirror", PORT + 1)
        self.assertEqual(self.peer(self.ours, "reflect", KERNELS, PORT + 1, 1).end(60), "all\n")
        keep = self.serve_peer(self.ours, "mirror", PORT + 2)
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 2, 1).end(60), "all\n")
        self.assert_ours(keep)

    def test_down_and_up(self):
        self.goes_on(*[lambda how=how: self.set(self.ours, how) for how in ("down", "up", "down", "up")])

    def test_another_link_address(self):
        self.goes_on(lambda: self.set(self.ours, "address", "02:00:00:00:77:01"),
                     lambda: self.set(self.other, "address", "02:00:00:00:77:02"))

    def test_mtu_there_and_back(self):
        self.goes_on(*[lambda h=h, mtu=mtu: self.set(h, "mtu", mtu) for h, mtu in
                       ((self.ours, "1200"), (self.other, "1200"), (self.other, "3000"), (self.ours, "3000"))])

    def test_datagrams_as_long_as_the_mtu_has_become(self):
        p = self.serve_peer(self.ours, "echo", PORT, kind="u")           # the interface is open all the time
        for mtu in (1000, 1500, 1700):
            for host in (self.ours, self.other):
                self.set(host, "mtu", str(mtu))
            self.peer(self.other, "ask", OURS, PORT, mtu - 28, 100).end()
        self.assert_ours(p)

    def test_a_stopped_reader_costs_no_processor(self):
        p = self.serve_peer(self.ours, "echo", PORT, kind="u")
        time.sleep(0.7)                 # it sleeps, and leads
        os.kill(p.child.pid, signal.SIGSTOP)
        for _ in range(3):
            self.peer(self.other, "shout", OURS, PORT, "hi").end()
        time.sleep(0.5)
        before = self.keepers_ticks()
        time.sleep(1)
        self.assertLess(self.keepers_ticks() - before, 20)      # of 100
        os.kill(p.child.pid, signal.SIGCONT)
        self.peer(self.other, "ask", OURS, PORT, 100).end()
        self.assert_ours(p)

    def keepers_ticks(self):
        """Of a hundredth of a second, of all keepers of ours."""
        sum_of = 0
        for row in self.seen("status")["keepers"]:
            with open(f"/proc/{row['pid']}/stat", encoding="ascii", errors="replace") as f:
                sum_of += sum(int(n) for n in f.read().rsplit(")", 1)[1].split()[11:13])
        return sum_of

    def test_renamed(self):
        self.goes_on(lambda: self.set(self.ours, "down"), lambda: self.set(self.ours, "name", OTHER),
                     lambda: self.set(self.ours, "up", name=OTHER))

    def test_renamed_and_back(self):
        self.goes_on(lambda: self.set(self.ours, "name", OTHER), lambda: self.set(self.ours, "name", lan.IFACE, name=OTHER))

    def test_the_kernel_takes_the_address_for_a_moment(self):
        self.goes_on(*[lambda how=how: self.ours.ip("addr", how, f"{OURS}/24", "dev", lan.IFACE) for how in ("add", "del")])


@lan.long_run
class FaultsOfShared(Faults):
    """The same through the bridge."""

    provider = "packet"


if __name__ == "__main__":
    unittest.main()
