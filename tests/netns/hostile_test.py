#!/usr/bin/env python3
"""Floods, scans and malformed packets from the other end of the cable: connections go on, byte-exact, memory is bounded, and what is
asked afterwards is answered. What share of its speed a connection keeps is bench/flood's to say."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402
import lan_test  # noqa: E402

PYTHON = "/usr/bin/python3"             # Debian's, which python3-scapy is for
EVIL = (PYTHON, os.path.join(HERE, "evil.py"))
FLOOD = (sys.executable, os.path.join(os.path.dirname(os.path.dirname(HERE)), "bench", "frame_flood"))
FLOODED = 5203
SPREAD = re.compile(r"Difficulty=(\d+)")


def scapy_is_here():
    return subprocess.run([PYTHON, "-c", "import scapy"], capture_output=True).returncode == 0


class Hostile(lan_test.Lan):
    def setUp(self):
        super().setUp()
        self.keep = self.serve_peer(self.ours, "mirror", lan_test.CLOSED)

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"no {program} here")

    def resident(self):
        """Kilobytes of all that runs on our host, what is shared counted once for each."""
        total = 0
        for pid in lan.sh("ip", "netns", "pids", self.ours.name).split():
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
                found = re.search(r"VmRSS:\s+(\d+)", f.read())
                total += int(found.group(1)) if found else 0
        return total

    def still_serves(self):
        self.assertEqual(self.peer(self.other, "reflect", lan_test.OURS, lan_test.CLOSED, 1).end(), "all\n")
        self.assert_ours(self.keep)
        self.assertIsNone(self.keep.child.poll(), self.keep.text(1))

    def reflects(self):
        return self.peer(self.other, "reflect", lan_test.OURS, lan_test.CLOSED, 20)

    def under(self, *attacker):
        """Bytes go both ways while that runs, and a connection can be opened after it."""
        before = self.counters()
        p = self.other.run(*attacker)
        self.assertEqual(self.reflects().end(lan.TRANSFER), "all\n")
        p.end()
        self.still_serves()
        return before, self.counters()

    def counters(self):
        found = self.seen("stat")
        return {**found["counters"], **found["drops"]}

    @contextlib.contextmanager
    def flooded(self, *hping, by, counted):
        """By so many packets at least before anything else happens."""
        self.need("hping3")
        start = counted()
        p = self.other.run("hping3", "-q", "--flood", *hping, lan_test.OURS)
        self.other.until(lambda: counted() > start + by, f"{by} of {hping}")
        yield
        p.stop()

    def arrived(self):
        """Packets, at our interface: what is for no stack of several no stack counts."""
        return json.loads(self.ours.ip("-j", "-s", "link", "show", lan.IFACE))[0]["stats64"]["rx"]["packets"]

    def flood(self, *hping, name):
        """A connection is opened in the middle of it, bytes go both ways, and so for a while after it."""
        with self.flooded(*hping, by=2000, counted=lambda: self.counters()[name]):
            c = self.reflects()
            with contextlib.suppress(subprocess.TimeoutExpired):
                c.child.wait(3)
        self.assertEqual(c.end(lan.TRANSFER), "all\n")
        self.still_serves()
        return self.counters()

    def test_syn_flood(self):
        """Of the listener itself, whose half-open connections last longer than the flood: cookies let others in (RFC 4987)."""
        after = self.flood("-S", "-p", str(lan_test.CLOSED), "--rand-source", name="TCP_COOKIE_OUT")
        self.assertGreater(after["TCP_COOKIE_IN"], 0)

    def test_syn_flood_that_is_answered(self):
        """As on any network, what goes back to forged addresses goes to a gateway: every SYN costs an answer, and none is lost for
        want of a route."""
        self.other.sysctl("net.ipv4.ip_forward", 0)
        self.ours.run(lan.UNET, "route", "add", "default", "via", lan_test.KERNELS, shim=False).end()
        self.still_serves()             # neighbours know one another
        before, after = self.under(*FLOOD, "syn", lan.IFACE, lan_test.OURS, str(lan_test.CLOSED), "20000", "3")
        self.assertGreater(after["TCP_COOKIE_OUT"], before["TCP_COOKIE_OUT"] + 200)
        self.assertGreater(after["TCP_COOKIE_IN"], before["TCP_COOKIE_IN"])
        self.assertEqual(after["IP_NO_ROUTE"], before["IP_NO_ROUTE"])
        self.assertGreater(self.not_for_us(), 200)

    def not_for_us(self):
        """Datagrams to addresses that are not the other host's, which it threw away."""
        names, values = [line.split() for line in self.other.read("/proc/net/snmp").splitlines() if line.startswith("Ip:")]
        return int(values[names.index("InAddrErrors")])

    @lan.long_run
    def test_syn_flood_of_closed_ports(self):
        self.flood("-S", "-p", "++1", name="TCP_NO_LISTENER")

    @lan.long_run
    def test_udp_flood(self):
        after = self.flood("--udp", "-p", "9", "-d", "100", name="UDP_NO_PORT")
        self.assertLess(after["ICMP_OUT"], after["UDP_NO_PORT"] / 10)       # RFC 1812 §4.3.2.8

    def test_fragment_flood(self):
        """Of which nothing could come: most of it ends before the stack."""
        self.flood("--udp", "-p", "9", "-x", "-d", "1000", "--rand-source", name="IP_FRAGS_IN")
        rows = json.loads(self.ours.run(lan.UNET, "status", "--json", shim=False).end())["sockets"]
        self.assertEqual([row["interface"] for row in rows], [lan.IFACE])
        self.assertGreater(rows[0]["hopeless_fragments"], 1000)

    @lan.long_run
    def test_icmp_flood(self):
        self.flood("-1", name="ICMP_IN")

    def test_memory_is_bounded(self):
        """What a flood may take it has taken after a while."""
        self.serve_peer(self.ours, "many-listen", FLOODED, 1)
        sizes = []
        for _ in range(3):
            for how in (("-S", "-p", str(FLOODED), "--rand-source"), ("--udp", "-x", "-d", "1000", "--rand-source")):
                with self.flooded(*how, by=100000, counted=self.arrived):
                    pass
            sizes.append(self.resident())
        self.assertLess(sizes[2], sizes[0] * 1.3 + 8192, sizes)
        self.still_serves()

    def evil(self, what, *counted):
        if not scapy_is_here():
            self.skipTest("no python3-scapy here")
        mac = self.ours.mac()
        before, after = self.under(*EVIL, what, lan.IFACE, lan_test.OURS, mac, str(lan_test.CLOSED))
        for name in counted:
            self.assertGreater(after[name], before[name], name)

    def test_arp_flood(self):
        self.evil("arp", "ARP_IN")

    def test_land(self):
        self.evil("land", "IP_MARTIAN")

    def test_teardrop_and_other_fragments(self):
        self.evil("fragments", "IP_FRAG_OVERLAP", "IP_FRAG_TINY", "IP_FRAG_BAD")

    def test_bad_options(self):
        self.evil("options", "IP_OPTIONS", "TCP_SHORT")

    def test_bad_checksums(self):
        self.evil("checksums", "IP_CHECKSUM", "TCP_CHECKSUM", "UDP_CHECKSUM", "ICMP_CHECKSUM")

    def test_noise(self):
        self.evil("noise")

    def test_port_scan(self):
        self.need("nmap")
        said = self.other.run("nmap", "-n", "-Pn", "-sS", "-p", f"{lan_test.CLOSED - 50}-{lan_test.CLOSED + 50}", "--reason",
                              "--min-rtt-timeout", "5s", "--max-rtt-timeout", "10s", lan_test.OURS).end()
        self.assertRegex(said, rf"{lan_test.CLOSED}/tcp +open +\S+ +syn-ack")
        self.assertRegex(said, r"Not shown: 100 closed tcp ports \(reset\)")
        self.still_serves()

    @lan.long_run
    def test_sequence_numbers_are_rated_as_the_kernels(self):
        """By the same scanner, which meets the kernel over its loopback."""
        self.need("nmap")
        theirs = self.serve_peer(self.other, "many-listen", lan_test.CLOSED, 1000)

        def rated(address):
            for _ in range(10):         # it rates what answers come in its time, and says nothing if they are too few
                said = self.other.run("nmap", "-n", "-Pn", "-O", "-v", "-p", f"{lan_test.CLOSED},{lan_test.CLOSED + 1}", address,
                                      shim=False).end()
                spread, ids = SPREAD.search(said), re.search(r"IP ID Sequence Generation: (.*)", said)
                if spread and ids:
                    return int(spread.group(1)), ids.group(1)
            return self.fail(said)

        (ours, ids), (kernels, _) = rated(lan_test.OURS), rated(lan_test.KERNELS)
        self.assertGreater(ours, kernels - 40)  # 8 a bit: of six numbers each, a spread of 32 bits is 256, give or take ten
        self.assertGreater(ours, 200, ids)      # "Good luck!"
        self.assertNotIn("Incremental", ids)
        self.still_serves()
        theirs.stop()


if __name__ == "__main__":
    lan_test.main()
