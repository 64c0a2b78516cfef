#!/usr/bin/env python3
"""IP options of sockets over an interface, with the kernel on the other end of a cable; and as tshark sees them on it."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, KERNELS, PORT = "10.78.0.1", "10.78.0.2", 5401
PROGRAM = (sys.executable, os.path.join(HERE, "options.py"))
ROUTE = "071704" + "00" * 20 + "00"             # record route, five places
ROUTER_ALERT = "94040000"
SIZES = ("1", "170", "1000", "1472", "4000", "20000")


def hosts(*addresses):
    return "".join("".join(f"{int(n):02x}" for n in a.split(".")) for a in addresses)


def route(*addresses):
    """The option with these recorded."""
    return (f"0717{4 + 4 * len(addresses):02x}" + hosts(*addresses)).ljust(48, "0")


class Options(lan.Scene):
    link = "auto"

    def setUp(self):
        self.ours, self.kernels = self.host("a", OURS), self.host("b", KERNELS)
        lan.cable(self.ours, self.kernels)
        self.ours.become_ours(link=self.link)
        self.kernels.become_kernels()

    def serve(self, host, *argv, kind="t"):
        return host.serve(PORT, *PROGRAM, argv[0], host.address, str(PORT), *argv[1:], kind=kind)

    def ask(self, host, whom, *argv):
        return host.run(*PROGRAM, argv[0], whom.address, str(PORT), *argv[1:])

    def well_formed(self, wire, which):
        """Nothing of ours is malformed, has a bad checksum or is too long for the cable; and all of `which` has options."""
        wire.close()
        checks = [w for proto in ("ip", "udp", "tcp") for w in ("-o", f"{proto}.check_checksum:TRUE")]
        bad = (f"ip.src == {OURS} && (_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || "
               f"tcp.checksum.status == 0 || ip.len > 1500 || ({which} && ip.hdr_len == 20))")
        self.assertEqual(lan.sh("tshark", "-r", wire.file, *checks, "-Y", bad), "")

    def datagrams(self, server, client):
        echo = self.serve(server, "echo", kind="u")
        p = self.ask(client, server, "ask", ROUTE, *SIZES)
        there = route(client.address, server.address)
        back = route(client.address, server.address, server.address, client.address)
        self.assertEqual(p.end(), "".join(f"{n} {back}\n" for n in SIZES))
        self.assertEqual(sorted(set(echo.text().splitlines())), sorted(f"{n} {there}" for n in SIZES))
        p = self.ask(client, server, "ask", ROUTER_ALERT, "100")
        self.assertEqual(p.end(), "100 -\n")
        self.assertIn(f"100 {ROUTER_ALERT}\n", echo.text())
        self.assert_ours(echo if server is self.ours else p)

    def test_the_kernel_asks(self):
        self.datagrams(self.ours, self.kernels)

    def test_we_ask(self):
        wire = lan.Wire(self.kernels) if not lan.missing("tshark") else None
        self.datagrams(self.kernels, self.ours)
        if wire:
            self.well_formed(wire, "udp && ip.frag_offset == 0")

    def connection(self, server, client):
        """RFC 1122 4.2.3.8: who is spoken to answers with what the SYN recorded."""
        p = self.serve(server, "listen", "8")
        q = self.ask(client, server, "connect", ROUTE, "8")
        self.assertEqual(q.end(), f"{ROUTE}\n")
        self.assertEqual(p.end(), route(client.address, server.address) + "\n")
        self.assert_ours(p if server is self.ours else q)

    def test_the_kernel_connects(self):
        wire = lan.Wire(self.kernels) if not lan.missing("tshark") else None
        self.connection(self.ours, self.kernels)
        if wire:
            self.well_formed(wire, "tcp")

    def test_we_connect(self):
        wire = lan.Wire(self.kernels) if not lan.missing("tshark") else None
        self.connection(self.kernels, self.ours)
        if wire:
            self.well_formed(wire, "tcp")


class Gateway(Options):
    """Every packet by the gateway of a shared interface."""
    link = "packet"


if __name__ == "__main__":
    reason = lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
