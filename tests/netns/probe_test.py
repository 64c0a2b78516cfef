#!/usr/bin/env python3
"""unetd asks whether somebody has its addresses before it uses them (RFC 5227 2.1.1), and leaves those alone that are taken."""

import os
import socket
import struct
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, KERNELS, PORT = "10.77.0.1", "10.77.0.2", 5201
LISTENER = """
import socket, struct
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
s.bind(("%s", 0x0806))
s.setsockopt(socket.SOL_SOCKET, 35, 1)          # SO_TIMESTAMPNS: when the kernel had it
s.settimeout(0.2)
print("ready", flush=True)
while True:
    try:
        packet, [(_, _, at)], _, _ = s.recvmsg(200, 100)
        print("%%d.%%09d" %% struct.unpack("@qq", at), packet.hex(), flush=True)
    except TimeoutError:
        pass
"""
LAST = "ffffffffffff" "020000000099" "0806" "0001" "0800" "0604" "7777"         # a frame that is no request, in hex
SAY = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
    s.bind((sys.argv[1], 0))
    s.send(bytes.fromhex(sys.argv[2]).ljust(60, b"\\0"))
"""


class Probe(lan.Scene):
    def setUp(self):
        self.ours, self.other = self.host("a", OURS), self.host("b", KERNELS)
        lan.cable(self.ours, self.other)
        self.other.become_kernels()

    def own(self, more=""):
        start = time.monotonic()
        self.ours.own(f"[interface {lan.IFACE}]\naddress = {OURS}/24\n{more}")
        return time.monotonic() - start

    def arp_seen(self, what):
        """(time, sender's address, target's address) of each ARP request that came to the other host meanwhile."""
        ear = self.other.run(sys.executable, "-c", LISTENER % lan.IFACE)
        self.other.until(lambda: "ready" in ear.text(), "somebody listens")
        what()
        time.sleep(2)
        self.ours.sh(sys.executable, "-c", SAY, lan.IFACE, LAST)
        self.other.until(lambda: LAST in ear.text(), "the last frame")
        ear.stop()
        lines = [line.split() for line in ear.text().splitlines()[1:]]
        packets = [(float(at), bytes.fromhex(p)[14:]) for at, p in lines]
        return [(at, socket.inet_ntoa(p[14:18]), socket.inet_ntoa(p[24:28])) for at, p in packets
                if struct.unpack("!H", p[6:8]) == (1,)]

    def works(self):
        s = self.other.serve(PORT, sys.executable, os.path.join(HERE, "peer.py"), "many-listen", KERNELS, str(PORT), "1")
        c = self.ours.run(sys.executable, os.path.join(HERE, "peer.py"), "many", KERNELS, str(PORT), "1")
        self.assertEqual(c.end(), "all\n")
        self.assertEqual(s.end(), "all\n")

    def test_three_probes_before_an_address_is_used(self):
        """One after another, but sooner than the RFC's, which take two seconds and more: when unetd gets the processor."""
        times = []
        for _ in range(10):
            asked = self.arp_seen(self.own)
            self.assertEqual([(src, to) for _, src, to in asked], [("0.0.0.0", OURS)] * 3)
            first, second, third = (at - asked[0][0] for at, *_ in asked)
            times.append((second, third))
            if first + 0.02 < second < third - 0.02 < 1.88:
                break
            self.ours.daemon.stop()
        else:
            self.fail(f"seconds after the first: {times}")
        self.works()

    @lan.long_run
    def test_with_the_times_of_the_rfc(self):
        took = []
        asked = self.arp_seen(lambda: took.append(self.own("probe = full\n")))
        self.assertEqual([(src, to) for _, src, to in asked], [("0.0.0.0", OURS)] * 3)
        self.assertGreater(took[0], 3.9)
        for (before, *_), (after, *_) in zip(asked, asked[1:]):
            self.assertGreater(after - before, 0.5)  # not before, by its clock; it may be late, and then the next is not
            self.assertLess(after - before, 60)

    def test_nobody_is_asked_where_nobody_should_be(self):
        self.assertEqual(self.arp_seen(lambda: self.own("probe = no\n")), [])
        self.works()

    def test_stacks_do_not_wait_for_probes(self):
        self.own()
        asked = self.arp_seen(self.works)
        self.assertNotIn("0.0.0.0", [src for _, src, _ in asked])

    def test_an_address_that_another_host_has_is_left_alone(self):
        self.other.ip("addr", "add", f"{OURS}/24", "dev", lan.IFACE)
        self.own()
        mac = self.other.mac()
        self.assertIn(f"interface {lan.IFACE}: NOT USED: its address {OURS} is in use by {mac}", self.ours.logged())
        shown = self.ours.run(lan.UNET, "if", shim=False)
        shown.end(ok=(1,))
        self.assertIn("owns no interface", shown.text(1))
        c = self.ours.run(sys.executable, os.path.join(HERE, "peer.py"), "error", "tcp", KERNELS, str(PORT))
        self.assertEqual(c.end(), "ENETUNREACH\n")

    def test_a_link_that_is_down_is_said(self):
        self.other.ip("link", "set", lan.IFACE, "down")
        self.ours.until(lambda: "NO-CARRIER" in self.ours.ip("link", "show", lan.IFACE), "the cable is out")
        self.own()
        self.assertRegex(self.ours.logged(), "is not known: the link (is down|takes nothing)")
        self.other.ip("link", "set", lan.IFACE, "up")
        self.other.ip("addr", "replace", f"{KERNELS}/24", "dev", lan.IFACE)
        self.works()


if __name__ == "__main__":
    reason = lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
