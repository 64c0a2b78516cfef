#!/usr/bin/env python3
"""SYNs that are answered behind the interface (unet/ni_answer.h), as programs meet them: the kernel's connect to ours."""

import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402
from lan_test import KERNELS, OURS, PORT, Lan  # noqa: E402

OPENS = [sys.executable, os.path.join(HERE, "opens.py")]
MANY = 100


def answered_by(host):
    return json.loads(host.run(lan.UNET, "stat", "--json", shim=False).end())["counters"]["TCP_ANSWERED"]


class Answers(Lan):
    def setUp(self):
        super().setUp()
        self.server = self.ours.serve(PORT, *OPENS, "serve", "0.0.0.0", str(PORT))

    def answered(self):
        return answered_by(self.ours)

    def opens(self, commands, *more):
        """How each of them went."""
        return self.other.run(*OPENS, "open", OURS, str(PORT), commands, *more).end().split()

    def all_open(self, commands, *more):
        self.assertEqual(self.opens(commands, *more), ["ok"] * len(commands))

    def test_all_but_the_first(self):
        """... and no more than that: what goes over the wire is what it should be."""
        wire = lan.Wire(self.other)
        self.all_open("e" * MANY)
        self.assertIn(self.answered(), range(MANY // 2, MANY))
        answers = wire.seen("tcp.flags.syn == 1 && tcp.flags.ack == 1", *lan.CHECKS)
        self.assertEqual(len(answers), MANY)
        sums = "" if self.offload else "tcp.checksum.status == 0 || "   # which the cable carries without
        bad = wire.seen(f"_ws.malformed || {sums}ip.checksum.status == 0 || tcp.flags.reset == 1 || "
                        "tcp.analysis.flags && !tcp.analysis.window_update && !tcp.analysis.reused_ports", *lan.CHECKS)
        self.assertEqual(bad, [])

    def test_a_closed_listener_refuses(self):
        self.all_open("eeec")
        self.assertEqual(self.opens("e" * 5), ["ECONNREFUSED"] * 5)

    def test_a_listener_that_changes(self):
        """Its windows are what it says, whatever was said before."""
        self.all_open("eebebebebebe" * 5)

    def test_who_comes_back_to_time_wait(self):
        """From the same port at once, while our side is in TIME-WAIT; and while it is in LAST-ACK or gone."""
        self.all_open("e" * 3)
        self.all_open("f" * 30, "40000")
        self.assertGreater(self.answered(), 0)

    def test_who_comes_back_from_a_crash(self):
        """Our side knows of a connection with the same ends, and its peer knows nothing: RFC 5961 §4, RFC 9293 §3.5.1."""
        self.all_open("e" * 3)
        held = self.other.run(*OPENS, "hold", OURS, str(PORT), "40001")
        self.other.until(lambda: "open" in held.text(), "a connection")
        self.other.ip("link", "set", lan.IFACE, "down")         # its RST goes nowhere
        held.stop()
        self.other.ip("link", "set", lan.IFACE, "up")
        self.other.comes_up(lan.IFACE)
        crowd = self.other.run(*OPENS, "open", OURS, str(PORT), "e", "40001")
        self.assertEqual(crowd.end(), "ok\n")

    def test_a_crowd_that_nobody_accepts(self):
        """The queue has room for three: the others wait, or ask again, and get their turn."""
        self.all_open("e" * 3)
        self.all_open("s")
        self.assertEqual(self.other.run(*OPENS, "crowd", OURS, str(PORT), "12").end(), "all\n")

    def test_an_answer_that_is_lost(self):
        """Ours is repeated by the stack, the peer's SYN is answered by it."""
        self.all_open("e" * 3)
        self.other.sh("nft", "add table ip few; add chain ip few in { type filter hook input priority 0 ; };"
                      f"add rule ip few in tcp sport {PORT} tcp flags & (syn | ack) == (syn | ack) numgen inc mod 3 0 drop")
        self.all_open("e" * 10)
        self.other.sh("nft", "delete table ip few")
        self.all_open("e" * 10)

    def test_two_programs_share_the_interface(self):
        """The bridge answers nothing; who is alone again learns again."""
        self.all_open("e" * 10)
        before = self.answered()
        self.assertGreater(before, 0)
        second = self.ours.serve(PORT + 1, *OPENS, "serve", "0.0.0.0", str(PORT + 1))
        held = self.other.run(*OPENS, "hold", OURS, str(PORT + 1), "40002")
        self.other.until(lambda: "open" in held.text(), "a connection")
        self.all_open("e" * 10)
        held.stop()
        second.stop()
        self.ours.until(self.ours.program_on_link, "rings of its own again")
        shared = self.answered()
        self.all_open("e" * 20)
        self.assertGreater(self.answered(), shared)

    def test_who_watches_sees_all(self):
        """`unet pcap` of a program from its first packet on."""
        self.server.stop()
        pcap = os.path.join(self.ours.dir, "seen.pcap")
        env = dict(self.ours.env)
        try:
            self.ours.env["UNET_CAPTURE"] = "128"
            self.ours.serve(PORT, *OPENS, "serve", "0.0.0.0", str(PORT))
        finally:
            self.ours.env.clear()
            self.ours.env.update(env)
        self.all_open("e" * 20)
        self.assertEqual(self.answered(), 0, pcap)


@lan.long_run
class Offload(Answers):
    """The kernel leaves its sums to a device, and we those of what we answer."""

    offload = True


class GenericPeer(lan.Scene):
    """Past an XDP program that runs behind the peer's driver goes what ours behind the interface sends; its stack hears no SYN-ACK but
    the stack's own."""

    def test_whose_answers_go_past_is_found_out(self):
        ours, other = self.host("a", OURS), self.host("b", KERNELS)
        lan.cable(ours, other)
        ours.become_ours(mode="tcx")
        other.become_ours(mode="generic")
        ours.serve(PORT, *OPENS, "serve", "0.0.0.0", str(PORT))
        said = other.run(*OPENS, "open", OURS, str(PORT), "e" * 20)
        self.assertEqual(said.end().split(), ["ok"] * 20)
        self.assert_ours(said)
        self.assertIn(answered_by(ours), (1, 2))        # the one that was lost, and the first again should the stack be slow


if __name__ == "__main__":
    reason = lan.why_not() or lan.missing("tshark", "dumpcap", "nft")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
