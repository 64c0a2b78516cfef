#!/usr/bin/env python3
"""Scenes of packets and calls in turns (control.py): what an application grants, holds and bounds, on the wire."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, PEER = "10.78.0.1", "10.78.0.2"
CONTROL = (sys.executable, os.path.join(HERE, "control.py"))
TRIES = 5                       # of what a busy machine may make late


class Control(lan.Scene):
    def setUp(self):
        self.us, self.peer = self.host("a", OURS), self.host("b", PEER)
        lan.cable(self.us, self.peer)
        self.macs = [h.mac() for h in (self.peer, self.us)]
        self.us.become_ours(provider=f"auto\nneighbour = {PEER} {self.macs[0]}")

    def played(self, scene):
        p = self.us.run(*CONTROL, f"/run/netns/{self.peer.name}", lan.IFACE, *self.macs, OURS, PEER, scene, shim=False)
        return p.end().splitlines()

    def plays(self, scene, *expected):
        self.assertEqual(self.played(scene), list(expected))

    def test_a_window_is_exactly_what_was_granted(self):
        self.plays("exactly_what_was_granted", *(f"acknowledged {a} edge {e}" for a, e in
                                                 ((0, 0), (0, 1), (0, 1001), (1001, 1001), (1001, 1008))))

    def test_a_peer_is_held_and_goes_on(self):
        self.plays("held_shut_and_opened_again", *(f"acknowledged {a} edge {e}" for a, e in
                                                   ((3000, 3000), (3000, 3000), (3000, 5000), (5000, 5000))))

    def test_no_more_than_the_most_is_granted(self):
        self.plays("no_more_than_the_most", "acknowledged 0 edge 1500", "grant 3501 EOVERFLOW", "acknowledged 0 edge 5000",
                   "grant 1 EOVERFLOW")

    def test_a_grant_is_said_in_units_of_the_scale(self):
        self.plays("in_units_of_the_scale", "unit 128", "acknowledged 1 edge 99969", "acknowledged 32 edge 100000",
                   "acknowledged 32 edge 100128")

    def test_a_clamp_that_is_raised_is_told_at_once(self):
        full, first, second = (line.split() for line in self.played("a_clamp_is_raised"))
        self.assertEqual((full[3], int(first[3]) - int(first[1])), (full[1], 3000))
        self.assertEqual((second[1], int(second[3]) - int(second[1])), (first[1], 13000))

    def test_no_more_is_in_flight_than_the_application_wants(self):
        most = [2000, 4000, 6000]
        for _ in range(TRIES):
            sent, in_flight = zip(*((int(words[1]), int(words[-1])) for words in map(str.split, self.played("no_more_in_flight"))))
            self.assertEqual(sent, (8000, 16000, 22000))
            self.assertTrue(all(n <= m for n, m in zip(in_flight, most)), in_flight)
            if list(in_flight) == most:
                return
        self.fail(f"{in_flight} at the most")

    def test_timeouts_keep_to_their_bounds(self):
        """Never sooner than doubled from the shortest on, up to the longest (what the machine adds to one it may take from the next);
        the first sooner than the 200 ms that are the least otherwise, the last than doubled once more without a bound."""
        for _ in range(TRIES):
            gaps = [float(ms) for ms in self.played("timeouts")[-1].split()]
            soon = [ms < 0.7 * min(20 << i, 1000) for i, ms in enumerate(gaps)]
            if not any(soon) and gaps[0] < 200 and gaps[-1] < 20 << 7:
                return
        self.fail(f"{gaps} ms")


if __name__ == "__main__":
    if (why := lan.why_not()):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
