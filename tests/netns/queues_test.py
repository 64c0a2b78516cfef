#!/usr/bin/env python3
"""An interface with several receive queues, as NICs have: what comes by each is ours (tests/netns/queues.py)."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
import lan_test  # noqa: E402
from lan_test import KERNELS, OURS, PORT  # noqa: E402

QUEUES = 3


class Queues(lan_test.Lan):
    def setUp(self):
        if not os.path.exists("/dev/net/tun"):
            self.skipTest("no /dev/net/tun here")
        self.ours, self.other = self.host("a", OURS), self.host("b", KERNELS)
        lan.cable(self.ours, self.other)
        nic = os.path.join(lan_test.HERE, "queues.py")
        self.nic = self.ours.run(sys.executable, nic, "nic0", lan.IFACE, str(QUEUES), shim=False)
        self.ours.until(lambda: self.nic.text() == "ready\n" or self.nic.child.poll() is not None, "the NIC")
        self.ours.ip("link", "set", "nic0", "up")
        self.ours.own(f"[interface nic0]\naddress = {OURS}/24\n")
        self.other.become_kernels()

    def came(self):
        """Packets by each queue, when all is over."""
        self.nic.child.terminate()
        return json.loads(self.nic.end().splitlines()[-1])

    def test_connections_by_every_queue(self):
        """From the kernel, and to it; a stack alone, which has what it has for a reason that is told."""
        s = self.serve_peer(self.ours, "many-listen", PORT, 60)
        self.assertEqual(self.peer(self.other, "many", OURS, PORT, 60).end(), "all\n")
        self.assertEqual(s.end(), "all\n")
        self.assert_ours(s)
        s = self.serve_peer(self.other, "many-listen", PORT + 1, 60)
        c = self.peer(self.ours, "many", KERNELS, PORT + 1, 60)
        self.assertEqual(c.end(), "all\n")
        self.assert_ours(c)
        self.assertGreater(min(self.came()), 60)
        self.assertIn(f"(tcx), since an AF_XDP socket takes one of its {QUEUES} queues", self.ours.logged())

    def test_bytes_arrive_as_sent(self):
        self.exchanged(self.both_ways(self.ours, self.other, 10), 10)


if __name__ == "__main__":
    lan_test.main()
