#!/usr/bin/env python3
"""Loans and reservations between two hosts of ours, each a stack on an end of a veth pair: bytes, any order of return, and who returns
nothing shuts his window and holds nobody else up."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402

SERVER, CALLER, PORT = "10.79.0.1", "10.79.0.2", 5000
LEND = os.path.join(lan.BUILD, "tests", "netns", "netns_lend")


class Lend(lan.Scene):
    def between(self, provider, mode):
        server, caller = self.host("a", SERVER), self.host("b", CALLER)
        lan.cable(server, caller)
        for h in (server, caller):
            h.become_ours(provider=provider, mode=mode)
        s = server.run(LEND, "serve", str(PORT), shim=False)
        server.until(lambda: server.listens(PORT + 1), "the server")
        c = caller.run(LEND, "call", SERVER, str(PORT), shim=False)
        self.assertEqual(s.end(lan.TRANSFER), f"{4 << 20} bytes, kept\n")
        c.end(lan.TRANSFER)

    def test_by_af_xdp(self):
        self.between("xdp", "native")

    def test_by_tcx(self):
        self.between("xdp", "tcx")

    def test_by_packet_sockets(self):
        self.between("packet", lan.MODE)


if __name__ == "__main__":
    if (why := lan.why_not()):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
