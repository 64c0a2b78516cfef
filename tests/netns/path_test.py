#!/usr/bin/env python3
"""Routers with a smaller MTU between us and the kernel, which tell, or which do not.

UNET_WHOLE=1: a gigabyte each way instead of some megabytes."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
import lan_test  # noqa: E402

FAR, OUR_ROUTER, THEIR_ROUTER, NARROW = "10.78.0.2", "10.77.0.254", "10.78.0.254", 576
BIG = 1024 if os.environ.get("UNET_WHOLE") else 24


class Path(lan_test.Lan):
    """ours - router - router - other; what lies between the routers is narrow."""
    mtu = 1500

    def setUp(self):
        self.ours, self.other = self.host("a", lan_test.OURS), self.host("b", FAR)
        self.near, self.far = self.host("r", None), self.host("t", None)
        lan.cable(self.ours, self.near, self.mtu)
        lan.cable(self.other, self.far, self.mtu)
        lan.routers(self.near, self.far, OUR_ROUTER, THEIR_ROUTER, NARROW)
        self.ours.become_ours(gateway=OUR_ROUTER)
        self.other.become_kernels(gateway=THEIR_ROUTER)
        self.other.sysctl("net.ipv4.tcp_mtu_probing", 1)        # or Linux waits for ever where nobody tells

    def silence(self):
        """What is too large is dropped by the routers, and they do not tell."""
        for router in (self.near, self.far):
            router.sh("nft", "add table ip quiet; add chain ip quiet out { type filter hook output priority 0; };"
                             "add rule ip quiet out icmp type destination-unreachable counter drop")

    def silenced(self, router):
        """How often the router would have told."""
        said = json.loads(router.sh("nft", "-j", "list", "table", "ip", "quiet"))["nftables"]
        return sum(e["counter"]["packets"] for row in said if "rule" in row for e in row["rule"]["expr"] if "counter" in e)

    def counters(self):
        return self.seen("stat")["counters"]

    def one_way(self, sender, receiver, megabytes):
        """So much from a client to a server."""
        s = receiver.serve(lan_test.PORT, *lan_test.PEER, "sink", receiver.address, str(lan_test.PORT))
        c = self.peer(sender, "source", receiver.address, lan_test.PORT, megabytes)
        self.assertEqual(c.end(lan.TRANSFER), s.end(lan.TRANSFER))
        self.assert_ours(c if sender is self.ours else s)
        return c

    def test_bytes_to_the_kernel(self):
        self.one_way(self.ours, self.other, BIG)

    def test_bytes_from_the_kernel(self):
        self.one_way(self.other, self.ours, BIG)

    @lan.long_run
    def test_bytes_both_ways(self):
        self.exchanged(self.both_ways(self.ours, self.other, BIG // 2), BIG // 2)

    def test_bytes_to_the_kernel_where_nobody_tells(self):
        self.silence()
        self.one_way(self.ours, self.other, BIG)
        self.assertGreater(self.silenced(self.near), 0)

    @lan.long_run
    def test_bytes_from_the_kernel_where_nobody_tells(self):
        self.silence()
        self.one_way(self.other, self.ours, BIG)
        self.assertGreater(self.silenced(self.far), 0)

    def test_what_a_router_says_is_unreachable_ends_a_connect(self):
        for name, error in (("host-unreachable", "EHOSTUNREACH"), ("net-unreachable", "ENETUNREACH")):
            self.near.sh("nft", "add table ip no; add chain ip no way { type filter hook forward priority 0; };"
                                f"add rule ip no way tcp dport {lan_test.CLOSED} reject with icmp type {name}")
            start = time.monotonic()
            p = self.peer(self.ours, "error", "tcp", FAR, lan_test.CLOSED)
            self.assertEqual(p.end(), error + "\n")
            self.assertLess(time.monotonic() - start, 100)     # an attempt that nobody answers takes four minutes
            self.near.sh("nft", "delete table ip no")

    def learnt_by(self, name):
        """While bytes go both ways: counters end with their stack, and are returned."""
        pair = self.both_ways(self.ours, self.other, 1, goes_on=True)
        self.ours.until(lambda: self.counters()[name] > 0, name)
        counters = self.counters()
        self.exchanged(pair, 1)
        return counters

    def test_who_is_told_believes_it(self):
        self.learnt_by("TCP_PMTU")

    def test_who_is_not_told_finds_out(self):
        self.silence()
        self.assertEqual(self.learnt_by("TCP_BLACK_HOLE")["TCP_PMTU"], 0)
        self.assertGreater(self.silenced(self.near), 0)


@lan.long_run
class LargeMtu(Path):
    mtu = 3000


if __name__ == "__main__":
    lan_test.main()
