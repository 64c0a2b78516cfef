#!/usr/bin/env python3
"""IP options of sockets over an interface, with the kernel on the other end of a cable; and as tshark sees them on it."""

import json
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
    provider = "auto"

    def setUp(self):
        self.ours, self.kernels = self.host("a", OURS), self.host("b", KERNELS)
        lan.cable(self.ours, self.kernels)
        self.ours.become_ours(provider=self.provider)
        self.kernels.become_kernels()

    def serve(self, host, *argv, kind="t"):
        return host.serve(PORT, *PROGRAM, argv[0], host.address, str(PORT), *argv[1:], kind=kind)

    def ask(self, host, whom, *argv):
        return host.run(*PROGRAM, argv[0], whom.address, str(PORT), *argv[1:])

    def well_formed(self, wire, which):
        """Nothing of ours is malformed, has a bad checksum or is too long for the cable; and all of `which` has options."""
        wire.close()
        bad = (f"ip.src == {OURS} && (_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || "
               f"tcp.checksum.status == 0 || ip.len > 1500 || ({which} && ip.hdr_len == 20))")
        self.assertEqual(lan.sh("tshark", "-r", wire.file, *lan.CHECKS, "-Y", bad), "")

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


@lan.long_run
class Bridge(Options):
    """Every packet by the bridge of a shared interface."""
    provider = "packet"


class Settings(lan.Scene):
    """[ip] of unet.conf(5)."""
    FAR = "10.79.0.2"

    def setUp(self):
        self.ours, self.router, self.far = self.host("a", OURS), self.host("r", "10.78.0.254"), self.host("f", self.FAR)
        lan.cable(self.ours, self.router)
        lan.cable(self.router, self.far, names=("far0", lan.IFACE))
        for address, name in (("10.78.0.254/24", lan.IFACE), ("10.79.0.254/24", "far0")):
            self.router.ip("addr", "add", address, "dev", name)
        self.far.become_kernels("10.79.0.254")
        self.router.sysctl("net.ipv4.ip_forward", 1)
        for host in (self.router, self.far):
            host.sh("sh", "-c", "cd /proc/sys/net/ipv4/conf; for f in */accept_source_route; do echo 1 >$f; done;"
                    " for f in */rp_filter; do echo 0 >$f; done")

    def own(self, settings, gateway=True):
        self.ours.own(f"[ip]\n{settings}[interface {lan.IFACE}]\naddress = {OURS}/24\n" +
                      ("gateway = 10.78.0.254\n" if gateway else ""))

    def test_the_ttl_is_as_configured(self):
        """RFC 1122 3.2.1.7: of sockets that say nothing, and of what no socket sends."""
        self.own("ttl = 33\n")
        p = self.router.run(sys.executable, os.path.join(HERE, "group.py"), "hear", "none", "-", str(PORT), "--beside")
        self.router.until(lambda: "joined" in p.text(), "the listener")
        self.ours.run(sys.executable, os.path.join(HERE, "group.py"), "say", "10.78.0.254", "any", str(PORT), "x").end()
        self.assertIn(" ttl 33\n", p.end())
        wire = lan.Wire(self.router) if not lan.missing("tshark") else None
        p = self.ours.serve(PORT, *PROGRAM, "listen", OURS, str(PORT), "1")
        q = self.router.run(*PROGRAM, "connect", OURS, str(PORT), "-", "1")
        q.end()
        p.end()
        self.assert_ours(p)
        if wire:
            self.assertEqual(wire.seen(f"ip.src == {OURS} && tcp && ip.ttl != 33"), [])

    def by(self, *hops):
        """A loose source route."""
        return f"83{3 + 4 * len(hops):02x}04" + hosts(*hops) + "00"

    def test_there_and_back_by_a_source_route(self):
        """RFC 1122 3.2.1.8 (c): there is no other way; who is spoken to finds the way back in what came."""
        self.own("source_routes = yes\n", gateway=False)
        self.far.env["UNSUMMED"] = "1"
        echo = self.far.serve(PORT, *PROGRAM, "echo", self.FAR, str(PORT), kind="u")
        p = self.ours.run(*PROGRAM, "ask", self.FAR, str(PORT), self.by("10.78.0.254"), "10", "2000")
        came = "830708" + hosts("10.78.0.254") + "00"
        self.assertEqual(p.end(), f"10 {came}\n2000 {came}\n")
        self.assert_ours(p)
        echo.stop()
        echo = self.ours.serve(PORT, *PROGRAM, "echo", OURS, str(PORT), kind="u")
        p = self.far.run(*PROGRAM, "ask", OURS, str(PORT), self.by("10.79.0.254"), "10", "2000")
        came = "830708" + hosts("10.79.0.254") + "00"
        self.assertEqual(p.end(), f"10 {came}\n2000 {came}\n")
        self.assert_ours(echo)

    def dropped(self, why):
        stat = json.loads(self.ours.run(lan.UNET, "stat", "--json", shim=False).end())
        return stat["drops"].get(why, 0)

    def test_what_is_to_go_on_from_here_is_told(self):
        """RFC 1122 3.3.5: a host that does not forward says that the source route failed."""
        reason = lan.missing("tshark")
        if reason:
            self.skipTest(reason)
        self.own("source_routes = yes\n")
        p = self.ours.serve(PORT, *PROGRAM, "echo", OURS, str(PORT), kind="u")
        wire = lan.Wire(self.router)
        self.far.run(*PROGRAM, "ask", "10.78.0.254", str(PORT), self.by("10.79.0.254", OURS), "10")
        self.ours.until(lambda: self.dropped("IP_SOURCE_ROUTE") > 0, "what is not for us")
        self.assert_ours(p)
        self.ours.until(lambda: wire.so_far(f"ip.src == {OURS} && icmp.type == 3 && icmp.code == 5"), "an error that says so")

    def test_connections_by_a_source_route(self):
        """RFC 1122 4.2.3.8."""
        self.own("source_routes = yes\n", gateway=False)
        p = self.far.serve(PORT, *PROGRAM, "listen", self.FAR, str(PORT), "2")
        q = self.ours.run(*PROGRAM, "connect", self.FAR, str(PORT), self.by("10.78.0.254"), "2")
        self.assertEqual(q.end(), self.by("10.78.0.254") + "\n")
        self.assertEqual(p.end(), self.by("10.79.0.254") + "\n")
        self.assert_ours(q)
        p = self.ours.serve(PORT + 1, *PROGRAM, "listen", OURS, str(PORT + 1), "2")
        q = self.far.run(*PROGRAM, "connect", OURS, str(PORT + 1), self.by("10.79.0.254"), "2")
        q.end()
        self.assertEqual(p.end(), self.by("10.78.0.254") + "\n")
        self.assert_ours(p)


if __name__ == "__main__":
    reason = lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
