#!/usr/bin/env python3
"""DCTCP (RFC 8257) over a cable that marks what finds more than K bytes waiting: eight flows, unmodified, are marked, and all go on. How
equally they share it, and what waits, is printed: here it depends on the machine too. In virtual time tests/sim/dctcp_test.c asserts
it."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402

SENDER, RECEIVER, PORT = "10.79.0.1", "10.79.0.2", 5201
FLOWS, SECONDS = 8, 8
RATE, DELAY = 100, 1            # Mb/s; ms each way
K = 30 * 1514                   # bytes; a seventh of what the path holds would do (RFC 8257 §4.1's reference)


class Dctcp(lan.Scene):
    def between(self, **settings):
        """What the cable did to the data, and the bytes that came of each flow."""
        a, b = self.host("a", SENDER), self.host("b", RECEIVER)
        cable = lan.Bad(self.host("m", None), a, b, rate=RATE, delay=DELAY, threshold=K, **settings)
        for h in (a, b):
            h.become_ours(more="[tcp]\ncongestion = dctcp\n")
        server = b.serve(PORT, "iperf3", "-s", "-1", "-p", str(PORT))
        client = a.run("iperf3", "-c", RECEIVER, "-p", str(PORT), "-J", "-P", str(FLOWS), "-t", str(SECONDS), "-O", "1")
        end = json.loads(client.end(lan.TRANSFER))["end"]
        server.end()
        self.assert_ours(client)
        return cable.stop()[0], [s["receiver"]["bytes"] for s in end["streams"]]

    def test_eight_flows_share_a_cable_that_marks(self):
        done, came = self.between()
        jain, rate = sum(came) ** 2 / (FLOWS * sum(n * n for n in came)), sum(came) * 8 / SECONDS / 1e6
        print(f"fairness {jain:.3f}, {done['waiting'] / K:.2f} K wait, {rate:.1f} Mb/s, {done}", flush=True)
        self.assertEqual(len(came), FLOWS)
        self.assertGreater(min(came), 0, came)
        self.assertGreater(done["marked"], 0)


if __name__ == "__main__":
    if (why := lan.why_not() or lan.missing("iperf3")):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
