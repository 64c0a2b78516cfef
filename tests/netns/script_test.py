#!/usr/bin/env python3
"""Scenes of packets and calls in turns (script.py), as they are on our stack over an interface and on the kernel's."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, PEER = "10.78.0.1", "10.78.0.2"
SCRIPT = (sys.executable, os.path.join(HERE, "script.py"))


class Script(lan.Scene):
    kernels = False

    def setUp(self):
        self.us, self.peer = self.host("a", OURS), self.host("b", PEER)
        lan.cable(self.us, self.peer)
        self.macs = [h.mac() for h in (self.peer, self.us)]
        if self.kernels:
            self.us.become_kernels()
            self.us.ip("neigh", "add", PEER, "lladdr", self.macs[0], "dev", lan.IFACE)
        else:
            self.us.become_ours(provider=f"auto\nneighbour = {PEER} {self.macs[0]}")

    def plays(self, scene, *expected):
        for _ in range(3):      # a machine that stood still may have had a segment sent again, or an order changed
            p = self.us.run(*SCRIPT, f"/run/netns/{self.peer.name}", lan.IFACE, *self.macs, OURS, PEER, scene)
            seen = p.end().splitlines()
            if seen == list(expected):
                break
        self.assertEqual(seen, list(expected))
        if not self.kernels and scene != "to_a_broadcast":
            self.assert_ours(p)

    def test_an_ack_is_heard_before_a_write_after_it(self):
        self.plays("more_after_an_ack", "send 40", "P. 1 40 1", "send 100", "send 100", "P. 41 200 1")

    def test_an_answer_acknowledges_what_came_before_it(self):
        self.plays("answer_acknowledges", "send 5", *[". 1 0 11"] * self.kernels, "P. 1 5 11")

    def test_close_with_unread_data_resets(self):
        self.plays("close_after_data", *[". 1 0 11"] * self.kernels, "R. 1 0 11")

    def test_a_reset_is_told_of_by_the_next_call(self):
        self.plays("send_after_reset", "send ECONNRESET", "send EPIPE", "recv b''")

    def test_what_was_reset_is_shut_down_no_more(self):
        self.plays("shutdown_after_reset", "shutdown ENOTCONN")

    def test_nobody_connects_to_a_broadcast(self):
        """RFC 9293 MUST-46"""
        self.plays("to_a_broadcast", "connect ENETUNREACH")


class Ours(Script):
    def test_the_first_window_ends_with_a_push(self):
        """... though another process of the stack may have sent the SYN-ACK, it goes as one run."""
        first = [f". {1 + 1000 * i} 1000 1" for i in range(9)]
        self.plays("first_window", "send 20000", *first, "P. 9001 1000 1")


class Kernels(Script):
    """What the scenes are held against."""

    kernels = True


del Script

if __name__ == "__main__":
    if (why := lan.why_not()):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
