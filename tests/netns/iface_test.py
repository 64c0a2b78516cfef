#!/usr/bin/env python3
"""Interfaces that unetd takes and gives back while programs run: `unet if add` and `unet if remove`."""

import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
from lan_test import KERNELS, OURS, PEER, PORT, Lan  # noqa: E402

ALICE, BOB = 12001, 12002


class Ifaces(Lan):
    def setUp(self):
        self.ours = self.host("a", OURS)
        self.other = self.host("b", KERNELS)
        lan.cable(self.ours, self.other)
        self.ours.own("")
        self.other.become_kernels()
        self.serve_peer(self.other, "mirror", PORT)

    def tool(self, *argv, ok=(0,), user=None):
        p = self.ours.run(lan.UNET, "if", *argv, shim=False, user=user)
        p.end(ok=ok)
        return p

    def add(self, *more):
        self.tool("add", lan.IFACE, f"{OURS}/24", *more)

    def remove(self):
        self.tool("remove", lan.IFACE)

    def there(self):
        return [row["name"] for row in json.loads(self.tool("--json").text())]

    def goes_over(self, user=None):
        p = self.peer(self.ours, "reflect", KERNELS, PORT, 1, user=user)
        self.assertEqual(p.end(), "all\n")
        self.assert_ours(p)

    def test_comes_and_goes(self):
        self.tool(ok=(1,))
        for _ in range(10):             # more often than there are places
            self.add()
            self.assertEqual(self.there(), [lan.IFACE])
            self.goes_over()
            self.remove()
            self.tool(ok=(1,))
            self.ours.until(lambda: not self.ours.program_on_link(), "the interface without a program")
        self.ours.become_kernels()      # the address is free for the kernel
        p = self.peer(self.ours, "reflect", KERNELS, PORT, 1)
        self.assertEqual(p.end(), "all\n")
        self.assertRegex(p.text(1), "kernel")

    def test_who_listened_before_is_reached(self):
        self.ours.serve(PORT + 1, *PEER, "echo", "0.0.0.0", str(PORT + 1), kind="u", user=BOB)
        self.ours.serve(PORT + 2, *PEER, "many-listen", "0.0.0.0", str(PORT + 2), "1000", user=ALICE)
        for _ in range(2):
            self.add("provider", "packet")
            self.peer(self.other, "ask", OURS, PORT + 1, 100).end()
            self.assertEqual(self.peer(self.other, "many", OURS, PORT + 2, 3).end(), "all\n")
            self.remove()

    def connected(self, users):
        """A pair of programs for each, who send to each other until something ends them."""
        self.add()
        pairs = [self.both_ways(self.other, self.ours, 1, 0.1, PORT + 3 + i, user=user, goes_on=True) for i, user in enumerate(users)]
        self.has_come(4)
        for _, client in pairs:
            self.ours.until(lambda c=client: "unet: pid" in c.text(1) or c.child.poll() is not None, "a connection")
            self.assert_ours(client)
        return pairs

    def are_told(self, pairs):
        for server, client in pairs:
            client.end(120, ok=(0, 1))
            self.assertRegex(client.text(1), r"OSError: \[Errno 100\]|BrokenPipeError", client.text(1))
            if len(pairs) == 1:         # a gateway goes at once, and tells nobody
                server.end(120, ok=(0, 1))      # whichever of its threads hears of it
                self.assertIn("ConnectionResetError", server.text(1))
            server.stop()
        self.ours.until(lambda: not self.ours.program_on_link(), "the interface without a program")

    def test_connections_end_when_it_goes(self):
        for users in ((None,), (ALICE, BOB)):
            pairs = self.connected(users)
            self.remove()
            self.are_told(pairs)

    def test_peers_are_told_by_a_keeper_that_is_late(self):
        pairs = self.connected((None,))
        [keeper] = [row["pid"] for row in self.seen("status")["keepers"]]
        os.kill(keeper, signal.SIGSTOP)
        try:
            self.remove()
        finally:
            os.kill(keeper, signal.SIGCONT)
        self.are_told(pairs)

    def test_its_gateway_and_routes_come_and_go_with_it(self):
        self.add("gateway", KERNELS, "metric", "7")
        rows = json.loads(self.ours.run(lan.UNET, "route", "--json", shim=False).end())
        self.assertIn(("default", KERNELS, 7), [(r["prefix"], r["gateway"], r["metric"]) for r in rows])
        self.other.ip("addr", "add", "10.88.0.2/32", "dev", "lo")
        self.other.serve(PORT + 9, *PEER, "mirror", "10.88.0.2", str(PORT + 9))
        self.assertEqual(self.peer(self.ours, "reflect", "10.88.0.2", PORT + 9, 1).end(), "all\n")
        self.remove()
        self.ours.run(lan.UNET, "route", shim=False).end(ok=(1,))
        self.add()
        self.assertNotIn("default", self.ours.run(lan.UNET, "route", shim=False).end())

    def test_its_link_address_changes(self):
        """While one program has it to itself, while two share it, and what one has then that is alone again."""
        self.add()
        self.serve_peer(self.ours, "mirror", PORT + 1)
        self.is_at("02:00:00:00:77:01")
        second = self.serve_peer(self.ours, "many-listen", PORT + 2, 1)
        self.is_at("02:00:00:00:77:02")
        second.stop()
        self.ours.until(self.ours.program_on_link, "a socket of its own again")
        self.other.ip("neigh", "flush", "dev", lan.IFACE)
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")

    def test_it_says_where_it_is_when_its_link_comes_up(self):
        self.add()
        self.serve_peer(self.ours, "mirror", PORT + 1)
        self.is_at("02:00:00:00:77:01")
        self.ours.ip("link", "set", lan.IFACE, "down")
        self.other.ip("neigh", "replace", OURS, "lladdr", "02:00:00:00:77:99", "nud", "stale", "dev", lan.IFACE)
        self.ours.ip("link", "set", lan.IFACE, "up")
        self.other.until(lambda: "02:00:00:00:77:01" in self.other.ip("neigh"), "the right address")

    def test_its_device_is_made_again(self):
        """Under its name, while one program has it, and while two share it."""
        for more in ((), ("provider", "packet")):
            self.add(*more)
            programs = [self.serve_peer(self.ours, "mirror", PORT + 1)]
            for _ in range(2):
                self.ours.ip("link", "del", lan.IFACE)
                lan.cable(self.ours, self.other)
                self.other.ip("addr", "replace", f"{KERNELS}/24", "dev", lan.IFACE)
                self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")
                self.goes_over()
                programs.append(self.serve_peer(self.ours, "many-listen", PORT + 1 + len(programs), 1))
            for p in programs:
                p.stop()
            self.remove()

    def is_at(self, mac):
        """Neighbours that know the interface hear of it."""
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")
        self.ours.ip("link", "set", lan.IFACE, "address", mac)
        self.other.until(lambda: mac in self.other.ip("neigh"), "the new address")
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")

    def test_what_is_refused(self):
        for says, status, argv in (("no such device", 1, ("add", "nothing0", f"{OURS}/24")),
                                   ("has that address", 1, ("add", lan.IFACE, f"{KERNELS}/24")),
                                   ("wants an address", 2, ("add", lan.IFACE, "10.77.0.1")),
                                   ("which interface", 2, ("add", lan.IFACE)),
                                   ("wants a value", 2, ("add", lan.IFACE, f"{OURS}/24", "gateway")),
                                   ("unknown key", 2, ("add", lan.IFACE, f"{OURS}/24", "colour", "red")),
                                   ("outside its network", 2, ("add", lan.IFACE, f"{OURS}/24", "gateway", "10.78.0.1")),
                                   ("AF_XDP", 1, ("add", lan.IFACE, f"{OURS}/24", "provider", "verbs")),
                                   ("no such interface", 1, ("remove", lan.IFACE))):
            self.assertIn(says, self.tool(*argv, ok=(status,)).text(1), argv)
        for argv in (("--json", lan.IFACE, f"{OURS}/24"), (lan.IFACE, f"{OURS}/24", "--json")):
            denied = json.loads(self.tool("add", *argv, ok=(1,), user=ALICE).text())
            self.assertFalse(denied["done"])
            self.assertIn("only root", denied["error"])
        self.add()
        self.assertIn("there already", self.tool("add", lan.IFACE, "10.77.0.5/24", ok=(1,)).text(1))
        self.assertIn("only root", self.tool("remove", lan.IFACE, ok=(1,), user=BOB).text(1))
        self.assertEqual(self.there(), [lan.IFACE])


if __name__ == "__main__":
    reason = lan.why_not() or lan.missing("setpriv")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
