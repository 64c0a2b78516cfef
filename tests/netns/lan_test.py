#!/usr/bin/env python3
"""Unmodified programs over AF_XDP, against the kernel on the other end of a cable."""

import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, KERNELS, PORT = "10.77.0.1", "10.77.0.2", 5201


class Lan(unittest.TestCase):
    mtu = 1500

    def setUp(self):
        self.hosts = []
        self.ours = self.host("a", OURS)
        self.other = self.host("b", KERNELS)
        lan.cable(self.ours, self.other, self.mtu)
        self.ours.become_ours()
        self.other.become_kernels()

    def host(self, letter, address):
        h = lan.Host(f"unet-{os.getpid()}-{letter}", address)
        self.hosts.append(h)
        return h

    def tearDown(self):
        if any(error for _, error in getattr(self._outcome, "errors", []) or []):
            print(self.ours.logged())
        for h in self.hosts:
            h.close()

    def iperf3(self, server, client, *options):
        """The share of what was sent that arrived, as iperf3 counts; the server serves this client only."""
        s = server.serve(PORT, "iperf3", "-s", "-1", "-p", str(PORT))
        c = client.run("iperf3", "-c", server.address, "-p", str(PORT), "-J", "-n", "20M", *options)
        result = json.loads(c.end())
        s.end()
        self.assertNotIn("error", result, c.text())
        for p in (s, c):
            if "unet: pid" in p.text(1):
                self.assertRegex(p.text(1), r": (ours|both)", p.text(1))
        end = result["end"]
        if "-u" in options:
            return 1 - end["sum"]["lost_percent"] / 100
        return end["sum_received"]["bytes"] / end["sum_sent"]["bytes"]


class Kernel(Lan):
    """The kernel is the other host."""

    def test_ping(self):
        keep = self.ours.serve(PORT, "nc", "-l", "-p", str(PORT))
        for size in (8, 1400):
            self.other.sh(sys.executable, os.path.join(HERE, "echo.py"), OURS, str(size))
        self.assertIsNone(keep.child.poll())

    def test_iperf3_to_the_kernel(self):
        self.assertGreater(self.iperf3(self.other, self.ours), 0.5)

    def test_iperf3_from_the_kernel(self):
        self.assertGreater(self.iperf3(self.ours, self.other), 0.5)

    def test_iperf3_reverse(self):
        self.assertGreater(self.iperf3(self.other, self.ours, "-R"), 0.5)

    def test_iperf3_eight_streams(self):
        self.assertGreater(self.iperf3(self.other, self.ours, "-P", "8"), 0.5)

    def test_iperf3_udp(self):
        self.assertGreater(self.iperf3(self.other, self.ours, "-u", "-b", "100M", "-l", "1400"), 0.5)
        self.assertGreater(self.iperf3(self.ours, self.other, "-u", "-b", "100M", "-l", "1400"), 0.5)


if __name__ == "__main__":
    reason = lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
