#!/usr/bin/env python3
"""A host of ours with two interfaces, two routers, and a host behind both: routes, gateways that die, changes at run time.

                    lan0  10.77.1.1 ---.--- 10.77.1.254  r1  10.88.1.254 ---.
          ours                         |                                    far  10.88.0.2, 10.88.9.2
                                       `--- 10.77.1.253  r2  10.88.2.254 ---'
                    lan1  10.77.2.1 ------- 10.77.2.254  r2
"""

import json
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

PORT = 5201
FAR, FAR2 = "10.88.0.2", "10.88.9.2"
LAN0, LAN1, R1, R2, R2B = "10.77.1.1", "10.77.2.1", "10.77.1.254", "10.77.1.253", "10.77.2.254"
PEER = lan.PEER
TWO = f"[interface lan0]\naddress = {LAN0}/24\ngateway = {R1}\n[interface lan1]\naddress = {LAN1}/24\n"


class Routes(lan.Scene):
    def setUp(self):
        self.ours, self.r1, self.r2, self.far = (self.host(x, a) for x, a in zip(("o", "r1", "r2", "f"), (LAN0, R1, R2, FAR)))
        lan.cable(self.ours, self.r1, names=("lan0", "ours"))
        lan.cable(self.ours, self.r2, names=("lan1", "ours"))
        lan.cable(self.r1, self.r2, names=("other", "other"))
        lan.cable(self.r1, self.far, names=("far", "r1"))
        lan.cable(self.r2, self.far, names=("far", "r2"))
        self.r1.ip("link", "add", "br0", "type", "bridge")
        for name in ("ours", "other"):
            self.r1.ip("link", "set", name, "master", "br0")
        self.r1.ip("link", "set", "br0", "up")
        self.r1.comes_up("br0")
        for h, name, address in ((self.r1, "br0", f"{R1}/24"), (self.r1, "far", "10.88.1.254/24"),
                                 (self.r2, "other", f"{R2}/24"), (self.r2, "ours", f"{R2B}/24"),
                                 (self.r2, "far", "10.88.2.254/24"), (self.far, "r1", "10.88.1.2/24"),
                                 (self.far, "r2", "10.88.2.2/24"), (self.far, "lo", f"{FAR}/32"), (self.far, "lo", f"{FAR2}/32")):
            h.ip("addr", "add", address, "dev", name)
        for h in (self.r1, self.r2, self.far):
            h.sh("sh", "-c", "cd /proc/sys/net/ipv4; echo 1 >ip_forward; for f in conf/*/rp_filter; do echo 0 >$f; done;"
                             " for f in conf/*/send_redirects; do echo 0 >$f; done")
        for h, via, beyond in ((self.r1, "10.88.1.2", "10.88.2.0/24"), (self.r2, "10.88.2.2", "10.88.1.0/24")):
            for net in ("10.88.0.0/24", "10.88.9.0/24", beyond):
                h.ip("route", "add", net, "via", via)
        self.back("r2")

    def back(self, by):
        """Which router what comes back passes, for the first network."""
        self.far.ip("route", "replace", "10.77.1.0/24", "via", {"r1": "10.88.1.254", "r2": "10.88.2.254"}[by])
        self.far.ip("route", "replace", "10.77.2.0/24", "via", "10.88.2.254")

    def passed(self, router):
        """Packets that the router has sent to the far host."""
        return json.loads(router.ip("-j", "-s", "link", "show", "far"))[0]["stats64"]["tx"]["packets"]

    def serve_far(self, address, port=PORT, count=1):
        return self.far.serve(port, *PEER, "many-listen", address, str(port), str(count))

    def many(self, address, port=PORT, count=1):
        c = self.ours.run(*PEER, "many", address, str(port), str(count))
        self.assertEqual(c.end(), "all\n")
        self.assertRegex(c.text(1), r"unet: pid \d+ fd \d+ tcp: ours")
        return c

    def went_by(self, address, port, count=20):
        """Connects to the far host, and names the router that it went by. Each connection is three packets of ours at least; of those
        before, the last acknowledgements may come as late as now, and neighbours are discovered meanwhile."""
        before = self.passed(self.r1), self.passed(self.r2)
        s = self.serve_far(address, port, count)
        self.many(address, port, count)
        s.end()
        r1, r2 = self.passed(self.r1) - before[0], self.passed(self.r2) - before[1]
        self.assertGreaterEqual(max(r1, r2), 3 * count, (r1, r2))
        self.assertLess(min(r1, r2), 2 * count, (r1, r2))
        return "r1" if r1 > r2 else "r2"

    def tool(self, *argv, ok=(0,), **more):
        p = self.ours.run(lan.UNET, *argv, shim=False, **more)
        p.end(ok=ok)
        return p

    def seen(self, *argv):
        return json.loads(self.tool(*argv, "--json").text())

    def test_by_the_gateway(self):
        self.ours.own(TWO)
        self.assertEqual(self.went_by(FAR, PORT), "r1")

    def test_the_longest_prefix_decides(self):
        self.ours.own(TWO + f"route = 10.88.0.0/16 via {R2B}\nroute = {FAR2}/32 via {R2B}\n"
                      f"[interface lan0]\nroute = 10.88.9.0/24 via {R1}\nroute = {FAR}/32 via {R2} metric 7\n")
        self.assertEqual(self.went_by(FAR, PORT), "r2")
        self.assertEqual(self.went_by(FAR2, PORT + 1), "r2")
        shown = {(r["prefix"], r["gateway"], r["interface"], r["metric"], r["state"]) for r in self.seen("route")}
        self.assertEqual(shown, {("10.77.1.0/24", None, "lan0", 0, "connected"), ("10.77.2.0/24", None, "lan1", 0, "connected"),
                                 ("default", R1, "lan0", 0, "set"), ("10.88.0.0/16", R2B, "lan1", 0, "set"),
                                 (f"{FAR2}/32", R2B, "lan1", 0, "set"), ("10.88.9.0/24", R1, "lan0", 0, "set"),
                                 (f"{FAR}/32", R2, "lan0", 7, "set")})

    def forwarded(self, router):
        """Packets that the router has passed on."""
        names, numbers = (row.split() for row in router.read("/proc/net/snmp").splitlines()[:2])
        return int(numbers[names.index("ForwDatagrams")])

    def redirected(self, settings):
        """How many packets of 20 connections the first router passes on, which knows that the second is nearer."""
        self.r1.sh("sh", "-c", "for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 1 >$f; done")
        self.r1.ip("route", "replace", "10.88.0.0/24", "via", R2)
        self.ours.own(settings + TWO)
        before = self.forwarded(self.r1)
        s = self.serve_far(FAR, PORT, 20)
        self.many(FAR, PORT, 20)
        s.end()
        return self.forwarded(self.r1) - before

    def test_redirects_are_refused(self):
        self.assertGreater(self.redirected(""), 40)

    def test_redirects_are_followed_where_that_is_said(self):
        """RFC 1122 3.2.2.2"""
        self.assertLess(self.redirected("[ip]\nredirects = yes\n"), 40)

    def test_routes_come_and_go_while_programs_run(self):
        self.ours.own(TWO)
        self.assertEqual(self.went_by(FAR, PORT), "r1")
        keep = self.ours.serve(PORT + 9, *PEER, "many-listen", LAN0, str(PORT + 9), "1")
        self.tool("route", "add", "10.88.0.0/16", "via", R2)
        self.back("r1")
        before = self.passed(self.r2)
        s = self.far.run(*PEER, "many", LAN0, str(PORT + 9), "1")        # its answers take the new way
        self.assertEqual(s.end(), "all\n")
        self.assertEqual(keep.end(), "all\n")
        self.far.until(lambda: self.passed(self.r2) - before > 2, "its answers, by the second router")
        self.assertEqual(self.went_by(FAR, PORT + 1), "r2")
        self.tool("route", "remove", "10.88.0.0/16")
        self.assertEqual(self.went_by(FAR, PORT + 2), "r1")
        self.assertIn("there is no such", self.tool("route", "remove", "10.88.0.0/16", ok=(1,)).text(1))
        self.assertIn("on no network", self.tool("route", "add", "10.99.0.0/24", "via", "10.99.0.1", ok=(1,)).text(1))
        self.assertIn("there already", self.tool("route", "add", "default", "via", R1, ok=(1,)).text(1))
        self.assertIn("usage", self.tool("route", "add", "10.99.0.1/24", "via", R1, ok=(2,)).text(1))

    def test_two_interfaces_at_once(self):
        """One server on both, one program that connects by both, each from the address it is to have."""
        self.ours.own(TWO)
        s = self.ours.serve(PORT, *PEER, "many-listen", "0.0.0.0", str(PORT), "40")
        for address in (LAN0, LAN1):
            c = self.r2.run(*PEER, "many", address, str(PORT), "20")
            self.assertEqual(c.end(), "all\n")
        self.assertEqual(s.end(), "all\n")
        self.ours.until(lambda: all(row["stack"] is None for row in self.seen("if")), "the interfaces are free")
        there = self.r2.serve(PORT + 1, *PEER, "names", "0.0.0.0", str(PORT + 1), "4")
        asked = self.ours.run(*PEER, "from", *(f"{to},{PORT + 1},{by}" for to, by in
                                               ((R2, ""), (R2B, ""), (R2, LAN0), (R2B, LAN1))))
        asked.end()
        self.assertRegex(asked.text(1), "ours")
        self.assertEqual(there.end().split(), [LAN0, LAN1, LAN0, LAN1])

    def test_a_source_keeps_to_its_interface(self):
        """RFC 1122 3.3.4.2, a host of the strong kind: what is bound to the second address leaves by the second interface."""
        self.ours.own(TWO + f"gateway = {R2B}\nmetric = 5\n")
        there = self.far.serve(PORT, *PEER, "names", FAR, str(PORT), "2")
        before = self.passed(self.r1)
        asked = self.ours.run(*PEER, "from", f"{FAR},{PORT},{LAN1}", f"{FAR},{PORT},")
        asked.end()
        self.assertEqual(there.end().split(), [LAN1, LAN0])
        self.assertGreater(self.passed(self.r1), before)

    def test_bound_to_a_device(self):
        self.ours.own(TWO + f"gateway = {R2B}\nmetric = 5\n")
        there = self.far.serve(PORT, *PEER, "names", FAR, str(PORT), "2")
        self.far.serve(PORT, *PEER, "sources", FAR, str(PORT), "4", kind="u")
        asked = self.ours.run(*PEER, "by", f"{FAR},{PORT},lan1", f"{FAR},{PORT},#lan0")
        asked.end()
        self.assertRegex(asked.text(1), "tcp: ours")
        self.assertEqual(there.end().split(), [LAN1, LAN0])
        self.assertEqual(self.far.programs[-1].end().split(), [LAN1, LAN1, LAN0, LAN0])
        self.ours.serve(PORT + 2, *PEER, "many-listen", LAN0, str(PORT + 2), "1")
        s = self.ours.serve(PORT + 1, *PEER, "by-listen", "lan1", str(PORT + 1), "1")
        for address, said in ((LAN0, "ECONNREFUSED\n"), (LAN1, "none\n")):
            self.assertEqual(self.r2.run(*PEER, "error", "tcp", address, str(PORT + 1)).end(), said)
        self.assertEqual(s.end(), LAN1 + "\n")

    def test_a_gateway_that_dies_gives_way_to_another(self):
        """In the middle of a transfer, and for what begins then."""
        self.ours.own(TWO + f"[interface lan0]\nroute = default via {R2} metric 9\n")
        pair = self.both(self.far, self.ours, FAR, PORT, 4, 0.05, goes_on=True)
        self.far.until(lambda: self.passed(self.r1) > 2000, "a part of it")
        self.r1.sh("sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward; ip addr flush dev br0")
        before = self.passed(self.r2)
        self.exchanged(pair, 4)
        self.assertGreater(self.passed(self.r2) - before, 1000)
        started = time.monotonic()
        self.assertEqual(self.went_by(FAR, PORT + 1, 60), "r2")
        self.assertLess(time.monotonic() - started, 150)        # each by itself would find out in three seconds

    def lengths(self, mtu, port):
        """How many packets of an exchange the first router has forwarded that are as long as that, and how many longer ones."""
        self.r1.sh("nft", "add table ip seen; add chain ip seen on { type filter hook forward priority 0; };" +
                   "".join(f"add rule ip seen on ip saddr {LAN0} ip length {which} counter;" for which in (f"{mtu}", f"> {mtu}")))
        self.exchanged(self.both(self.far, self.ours, FAR, port, 3), 3)
        said = json.loads(self.r1.sh("nft", "-j", "list", "table", "ip", "seen"))["nftables"]
        self.r1.sh("nft", "delete table ip seen")
        return [e["counter"]["packets"] for row in said if "rule" in row for e in row["rule"]["expr"] if "counter" in e]

    def test_what_a_route_carries_is_heeded(self):
        self.ours.own(TWO)
        self.tool("route", "add", "10.88.0.0/16", "via", R1, "mtu", "1000")
        for port, mtu in ((PORT, 1000), (PORT + 1, 1500)):
            whole, longer = self.lengths(mtu, port)
            self.assertGreater(whole, 500)
            self.assertEqual(longer, 0)
            if mtu == 1000:
                self.tool("route", "remove", "10.88.0.0/16")

    @lan.long_run
    def test_an_mtu_that_changes_in_the_middle(self):
        """Smaller than what is under way, then larger: the bytes arrive, and none has to wait for a timeout of minutes."""
        self.ours.own(TWO)
        pair = self.both(self.far, self.ours, FAR, PORT, 4, 0.05, goes_on=True)
        self.far.until(lambda: self.passed(self.r1) > 2000, "a part of it")
        for mtu in (1000, 1500):
            for h, name in ((self.ours, "lan0"), (self.r1, "ours")):
                h.ip("link", "set", name, "mtu", str(mtu))
            self.ours.until(lambda: self.seen("if")[0]["mtu"] == mtu, "the MTU is seen")
            time.sleep(0.4)
        self.exchanged(pair, 4)

    def ping(self, *argv, ok=(0,)):
        """What it says; its packets in the order in which they were sent."""
        said = json.loads(self.tool("ping", "--timeout", "120", "--interval", "0.05", "--json", *argv, ok=ok).text())
        said["packets"].sort(key=lambda r: r["seq"])
        return said

    def test_ping(self):
        self.ours.own(TWO)
        p = self.ping("--count", "5", FAR)
        self.assertEqual((p["sent"], p["received"], p["source"], p["errors"]), (5, 5, LAN0, 0))
        self.assertEqual([(r["what"], r["seq"], r["from"], r["bytes"], r["ttl"]) for r in p["packets"]],
                         [("reply", n, FAR, 64, 63) for n in range(5)])
        self.assertLessEqual(p["rtt_ns"]["min"], p["rtt_ns"]["avg"])
        for size in ("0", "1472", "1473", "20000", "65507"):    # one: two of the longest are more than may wait for a neighbour
            self.assertEqual(self.ping("--count", "1", "--size", size, FAR)["received"], 1, size)
        self.assertEqual(self.ping("--count", "2", "--source", LAN1, R2B)["source"], LAN1)
        text = self.tool("ping", "--timeout", "120", "--count", "2", "--interval", "0.1", FAR).text()
        for seq in range(2):
            self.assertRegex(text, f"64 bytes from {FAR}: seq={seq} ttl=63 time=[0-9.]+ ms\n")
        self.assertRegex(text, f"ms\n\n{FAR}: 2 sent, 2 received, 0% lost\nround")

    @lan.long_run
    def test_ping_beside_other_stacks(self):
        """Each hears its own answers and errors, while a server has the same interface."""
        self.ours.own(TWO)
        self.ours.serve(PORT, *PEER, "many-listen", "0.0.0.0", str(PORT), "1")
        pings = [self.ours.run(lan.UNET, "ping", "--timeout", "120", "--json", "--count", "20", "--interval", "0.05", *argv, shim=False)
                 for argv in ((FAR,), (FAR, "--size", "3000"), (R2B,))]
        for p in pings:
            p.end()
            said = json.loads(p.text())
            self.assertEqual((said["sent"], said["received"], said["duplicates"]), (20, 20, 0), said)
        self.assertEqual(self.ping("--count", "1", "--ttl", "1", FAR, ok=(1,))["packets"][0]["error"], "time to live exceeded")

    def test_ping_tells_of_errors(self):
        self.ours.own(TWO)
        p = self.ping("--count", "2", "--ttl", "1", FAR, ok=(1,))
        self.assertEqual([(r["what"], r["from"], r["error"]) for r in p["packets"]],
                         [("error", R1, "time to live exceeded")] * 2)
        p = self.ping("--count", "1", "10.77.1.77", ok=(1,))
        self.assertEqual([(r["from"], r["error"]) for r in p["packets"]], [(LAN0, "host unreachable")])
        p = self.ping("--count", "1", "--dont-fragment", "--size", "1473", FAR, ok=(1,))
        self.assertEqual((p["sent"], p["refused"]), (0, 1))
        self.r1.ip("link", "set", "far", "mtu", "1000")
        p = self.ping("--count", "2", "--interval", "4", "--dont-fragment", "--size", "1400", FAR, ok=(1,))
        self.assertEqual([r["error"] for r in p["packets"]], ["too long, 1000 bytes get through"])
        self.assertEqual((p["sent"], p["refused"]), (1, 1))              # the second one is known not to get through
        self.assertEqual(self.ping("--count", "1", "--size", "1400", FAR)["received"], 1)       # in pieces it does
        for argv in (("no.such.host.invalid",), ("10.99.9.9", "--source", "10.99.9.1")):
            self.tool("ping", "--count", "1", *argv, ok=(2,))

    def test_neighbours_that_are_told(self):
        self.ours.own(TWO + f"neighbour = {R2B} 02:00:00:00:00:99\n")
        mac = json.loads(self.r2.ip("-j", "link", "show", "other"))[0]["address"]
        self.tool("arp", "add", R2, mac)
        self.r2.ip("link", "set", "other", "arp", "off")
        self.assertEqual({(n["address"], n["mac"]) for n in self.seen("arp") if n["state"] == "STATIC"},
                         {(R2, mac), (R2B, "02:00:00:00:00:99")})
        s = self.r2.serve(PORT, *PEER, "many-listen", R2, str(PORT), "1")
        self.r2.ip("neigh", "replace", LAN0, "lladdr", json.loads(self.ours.ip("-j", "link", "show", "lan0"))[0]["address"],
                   "dev", "other")
        self.many(R2)
        s.end()
        self.tool("arp", "remove", R2B)
        self.assertEqual([n["address"] for n in self.seen("arp") if n["state"] == "STATIC"], [R2])
        self.assertIn("there is no such", self.tool("arp", "remove", R2B, ok=(1,)).text(1))
        self.assertIn("on no network", self.tool("arp", "add", FAR, mac, ok=(1,)).text(1))

    def test_an_interface_that_is_down_is_not_used(self):
        self.ours.own(TWO + f"gateway = {R2B}\nmetric = 5\n")
        self.assertEqual(self.went_by(FAR, PORT), "r1")
        self.tool("if", "down", "lan0")
        self.assertEqual({r["name"]: r["state"] for r in self.seen("if")}, {"lan0": "down", "lan1": "up"})
        self.assertEqual(self.went_by(FAR, PORT + 1), "r2")
        self.tool("if", "up", "lan0")
        self.assertEqual(self.went_by(FAR, PORT + 2), "r1")
        self.ours.ip("link", "set", "lan0", "down")
        self.ours.until(lambda: self.seen("if")[0]["state"] == "down", "the link is seen to be down")
        self.assertEqual(self.went_by(FAR, PORT + 3), "r2")
        self.assertIn("no such interface", self.tool("if", "down", "lan7", ok=(1,)).text(1))

    def test_only_the_owner_changes_routes(self):
        self.ours.own(TWO)
        for argv in (("route", "add", "10.99.0.0/24", "via", R1), ("route", "remove", "default"), ("if", "down", "lan0"),
                     ("arp", "add", R1, "02:00:00:00:00:01"), ("arp", "remove", R1)):
            p = self.ours.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", lan.UNET, *argv, shim=False)
            p.end(ok=(1,))
            self.assertIn("only root and the user whose unetd it is", p.text(1))
        self.assertEqual(len(self.seen("route")), 3)


if __name__ == "__main__":
    reason = lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
