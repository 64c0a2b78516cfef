#!/usr/bin/env python3
"""Unmodified programs over AF_XDP, against the kernel on the other end of a cable.

UNET_WHOLE=1: a gigabyte each way instead of some megabytes."""

import hashlib
import json
import os
import re
import signal
import shutil
import socket
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, KERNELS, NOBODY, PORT, CLOSED = "10.77.0.1", "10.77.0.2", "10.77.0.9", 5201, 5202
BIG = 1024 if os.environ.get("UNET_WHOLE") else 200 if lan.LONG else 50          # megabytes
PEER = lan.PEER


class Lan(lan.Scene):
    mtu, offload = 1500, False

    def setUp(self):
        self.ours = self.host("a", OURS)
        self.other = self.host("b", KERNELS)
        lan.cable(self.ours, self.other, self.mtu, self.offload)
        self.ours.become_ours()
        self.other.become_kernels()

    def peer(self, host, *argv, **more):
        return host.run(*PEER, *map(str, argv), **more)

    def serve_peer(self, host, what, port, *argv, kind="t", **more):
        return host.serve(port, *PEER, what, host.address, str(port), *map(str, argv), kind=kind, **more)

    def both_ways(self, server, client, megabytes, pause=0, port=PORT, **more):
        """The two programs that exchange so much each way; exchanged() waits for them."""
        return self.both(server, client, server.address, port, megabytes, pause, **more)

    def has_come(self, megabytes):
        """Waits until so much more has come to the other host."""
        enough = self.other.received() + (megabytes << 20)
        self.other.until(lambda: self.other.received() > enough, f"{megabytes} megabytes more")

    def seen(self, *argv):
        return json.loads(self.ours.run(lan.UNET, *argv, "--json", shim=False).end())

    def answers_tags(self):
        """Echoes behind tags of VLAN 0 are answered, behind those of others not."""
        none = ["81000000", "8100e000", "88a80000", ""]
        told = self.other.run(sys.executable, os.path.join(HERE, "tagged.py"), lan.IFACE, OURS, "81000005", "8100efff",
                              "8100000081000005", *none).end()
        self.assertEqual(told.splitlines(), none)

    def iperf3(self, server, client, *options):
        """Something arrives, as iperf3 counts: when the client has nothing more to send, which others' buffers may hold, it counts
        no more. The server serves this client only."""
        s = server.serve(PORT, "iperf3", "-s", "-1", "-p", str(PORT))
        c = client.run("iperf3", "-c", server.address, "-p", str(PORT), "-J", "-n", "20M", *options)
        result = json.loads(c.end())
        s.end()
        self.assertNotIn("error", result, c.text())
        for p in (s, c):
            if "unet: pid" in p.text(1):
                self.assertRegex(p.text(1), r": (ours|both)", p.text(1))
        end = result["end"]
        if "-u" in options:
            self.assertGreater(end["sum"]["packets"] - end["sum"]["lost_packets"], 0, c.text())
        else:
            self.assertGreater(end["sum_received"]["bytes"], 0, c.text())


class Kernel(Lan):
    """The kernel is the other host."""

    def test_ping(self):
        keep = self.ours.serve(PORT, "nc", "-l", "-p", str(PORT))
        for size in (8, 1400):
            self.other.sh(sys.executable, os.path.join(HERE, "echo.py"), OURS, str(size))
        self.assertIsNone(keep.child.poll())

    def test_frames_with_a_priority_and_no_vlan_are_taken(self):
        """IEEE 802.1Q: one of VLAN 0 is as good as untagged, and belongs to no other."""
        keep = self.serve_peer(self.ours, "many-listen", PORT, 1)
        self.answers_tags()
        self.assertGreater(self.seen("stat")["drops"]["ETHER_VLAN"], 0)
        self.assertIsNone(keep.child.poll())

    def test_iperf3_to_the_kernel(self):
        self.iperf3(self.other, self.ours)

    @lan.long_run
    def test_iperf3_from_the_kernel(self):
        self.iperf3(self.ours, self.other)

    @lan.long_run
    def test_iperf3_reverse(self):
        self.iperf3(self.other, self.ours, "-R")

    @lan.long_run
    def test_iperf3_eight_streams(self):
        self.iperf3(self.other, self.ours, "-P", "8")

    def test_iperf3_udp(self):
        self.iperf3(self.other, self.ours, "-u", "-b", "100M", "-l", "1400")
        self.iperf3(self.ours, self.other, "-u", "-b", "100M", "-l", "1400")

    def test_bytes_arrive_as_sent(self):
        self.exchanged(self.both_ways(self.ours, self.other, BIG), BIG)

    def test_bytes_arrive_as_sent_by_a_client_of_ours(self):
        self.exchanged(self.both_ways(self.other, self.ours, BIG), BIG)

    def interface_comes_back(self, sig, stacks=1):
        """All that the kernel says of it is as before, and it works."""
        before = self.said_of_interface()
        users = [self.serve_peer(self.ours, "many-listen", PORT + 2 + i, 1) for i in range(stacks)]
        self.assertEqual(self.ours.program_on_link(), stacks == 1)
        self.ours.daemon.child.send_signal(sig)
        self.ours.daemon.child.wait(120)
        self.ours.until(lambda: not self.ours.program_on_link(), "the interface without a program")
        for p in users:
            p.stop()
        for _ in range(100):
            if self.said_of_interface() == before:
                break
            time.sleep(0.1)
        self.assertEqual(self.said_of_interface(), before)
        self.ours.become_kernels()
        self.serve_peer(self.ours, "mirror", PORT + 1, shim=False)
        self.assertEqual(self.peer(self.other, "reflect", OURS, PORT + 1, 1).end(), "all\n")

    def said_of_interface(self):
        """Its flags, features, queues and addresses (but IPv6's, which are tentative at first), and what programs are behind it."""
        said = [json.loads(self.ours.ip("-4", "-d", "-j", what, "show", "dev", lan.IFACE)) for what in ("link", "addr")]
        features, queues = self.ours.sh("ethtool", "-k", lan.IFACE), self.ours.sh("tc", "qdisc", "show", "dev", lan.IFACE)
        return said, self.ours.programs_behind(), features, queues

    def test_interface_comes_back_when_unetd_ends(self):
        self.interface_comes_back(signal.SIGTERM)

    @lan.long_run
    def test_interface_comes_back_when_unetd_is_killed(self):
        self.interface_comes_back(signal.SIGKILL)

    def test_interface_comes_back_when_its_bridge_is_killed(self):
        self.interface_comes_back(signal.SIGKILL, 2)

    def http(self, server, client):
        """A file by curl from Python's server of files."""
        data = os.urandom(20 << 20)
        with open(os.path.join(server.dir, "file"), "wb") as f:
            f.write(data)
        s = server.serve(PORT, sys.executable, "-m", "http.server", "-d", server.dir, "-b", server.address, str(PORT))
        got = os.path.join(client.dir, "got")
        c = client.run("curl", "-sS", "-f", "--max-time", "300", "-o", got, f"http://{server.address}:{PORT}/file")
        c.end()
        with open(got, "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).digest(), hashlib.sha256(data).digest())
        self.assert_ours(s if server is self.ours else c)

    def test_curl_from_a_server_of_ours(self):
        self.http(self.ours, self.other)

    @lan.long_run
    def test_our_curl_from_an_ordinary_server(self):
        self.http(self.other, self.ours)

    def datagrams(self, server, client):
        s = self.serve_peer(server, "echo", PORT, kind="u")
        c = self.peer(client, "ask", server.address, PORT, 1, 1472, 4000, 20000)
        c.end()
        self.assert_ours(s if server is self.ours else c)

    def test_datagrams_in_fragments_to_the_kernel(self):
        self.datagrams(self.other, self.ours)

    def test_datagrams_in_fragments_from_the_kernel(self):
        self.datagrams(self.ours, self.other)

    def test_ports_that_are_closed(self):
        keep = self.serve_peer(self.ours, "many-listen", PORT, 1)
        for kind in ("tcp", "udp"):
            self.assertEqual(self.peer(self.other, "error", kind, OURS, CLOSED).end(), "ECONNREFUSED\n")
        keep.stop()
        for kind in ("tcp", "udp"):
            self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")
            p = self.peer(self.ours, "error", kind, KERNELS, CLOSED)
            self.assertEqual(p.end(), "ECONNREFUSED\n")
            self.assert_ours(p)

    def test_a_protocol_that_nobody_speaks(self):
        """RFC 1122 3.2.2.1: who sends it is told so, by a stack and by the bridge."""
        ask = ("import errno, socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253); s.settimeout(60); "
               "s.setsockopt(socket.IPPROTO_IP, 11, 1); s.connect((sys.argv[1], 0)); s.send(b'anybody?')\n"
               "try: s.recv(100)\nexcept OSError as e: print(errno.errorcode[e.errno])")
        for port in (PORT, PORT + 1):
            keep = self.serve_peer(self.ours, "many-listen", port, 1)
            self.assert_ours(keep)
            self.assertEqual(self.other.run(sys.executable, "-c", ask, OURS).end(), "ENOPROTOOPT\n")

    @lan.long_run
    def test_who_sends_with_fast_open_connects(self):
        """sendto() with MSG_FASTOPEN: the kernel has no way to there, so it must be ours."""
        said = ("import socket, sys; s = socket.socket(); "
                f"print(s.sendto(b'hello', {socket.MSG_FASTOPEN:#x}, ('{KERNELS}', {PORT})), s.recv(9))")
        echo = (f"import socket; l = socket.create_server(('{KERNELS}', {PORT})); "
                "c = l.accept()[0]; c.sendall(c.recv(5)); c.recv(1)")
        server = self.other.serve(PORT, sys.executable, "-c", echo)
        client = self.ours.run(sys.executable, "-c", said)
        self.assertEqual(client.end(), "5 b'hello'\n")
        self.assert_ours(client)
        server.end()

    def test_the_last_ack_of_a_program_that_is_gone(self):
        """Its stack ends with its connections, and has answered the peer's FIN before."""
        said = f"import socket; socket.create_connection(('{KERNELS}', {PORT})).sendall(b'1')"
        stays = ("import socket, struct, sys, time\n"
                 f"c = socket.create_server(('{KERNELS}', {PORT})).accept()[0]\n"
                 "c.recv(9), c.recv(9), print('over', flush=True), sys.stdin.read(1), c.shutdown(socket.SHUT_WR)\n"
                 "for _ in range(300):\n"
                 "    state = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]\n"
                 "    if state == 7: break\n"
                 "    time.sleep(0.1)\n"
                 "print(state)")
        server = self.other.serve(PORT, sys.executable, "-c", stays, stdin=subprocess.PIPE)
        client = self.ours.run(sys.executable, "-c", said)
        client.end()
        self.assert_ours(client)
        self.other.until(lambda: "over" in server.text(), "the client's FIN")
        server.child.stdin.close()
        self.assertEqual(server.end(), "over\n7\n")            # TCP_CLOSE

    def test_an_address_that_nobody_has(self):
        """Three requests, a second apart: then connect() and recv() say so, as the kernel's do."""
        for kind in ("tcp", "udp"):
            start = time.monotonic()
            p = self.peer(self.ours, "error", kind, NOBODY, CLOSED)
            self.assertEqual(p.end(), "EHOSTUNREACH\n")
            self.assertLess(time.monotonic() - start, 100)     # the kernel tries for two minutes
            self.assert_ours(p)
            self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")

    def in_the_middle(self, what):
        """Does it while bytes go both ways."""
        pair = self.both_ways(self.ours, self.other, 10, 0.05, goes_on=True)
        self.has_come(5)
        what()
        self.exchanged(pair, 10)

    def test_link_down_and_up_in_the_middle(self):
        def blink(host):
            host.ip("link", "set", lan.IFACE, "down")
            time.sleep(0.5)
            host.ip("link", "set", lan.IFACE, "up")

        self.in_the_middle(lambda: blink(self.other))
        self.in_the_middle(lambda: blink(self.ours))

    @lan.long_run
    def test_no_progress_confirms_no_neighbour(self):
        """Its MAC address changes while bytes go both ways: what it repeats, after all that came before, is no sign that ours
        arrive."""
        mac = "02:00:00:00:77:99"
        pair = self.both_ways(self.ours, self.other, 1, 0.05, goes_on=True)
        self.has_come(5)
        self.other.ip("link", "set", lan.IFACE, "address", mac)
        self.other.until(lambda: self.repeated() > 1 or not self.confirmed(mac), "it to repeat itself")
        before, times = self.confirmed(mac), self.repeated()
        self.other.until(lambda: self.repeated() > times or not self.confirmed(mac), "it to do so again")
        time.sleep(1)
        after = self.confirmed(mac)
        if after:                       # or it was found at its new address by now
            self.assertLessEqual(after[0], before[1])
        self.exchanged(pair, 1)

    def repeated(self):
        """How often the other host has done so in a row, of the bytes that wait longest."""
        found = re.search(r" backoff:(\d+)", self.other.sh("ss", "-Htin", "state", "established"))
        return int(found.group(1)) if found else 0

    def confirmed(self, mac):
        """When the other host was last known to hear us, not before and not after (CLOCK_MONOTONIC); None: it has that address."""
        asked = time.monotonic()
        [neighbour] = self.seen("arp")
        if neighbour["mac"] == mac:
            return None
        return asked - neighbour["confirmed"] / 1e9, time.monotonic() - neighbour["confirmed"] / 1e9

    def test_a_thousand_connections_at_once(self):
        s = self.serve_peer(self.ours, "many-listen", PORT, 1000)
        self.assertEqual(self.peer(self.other, "many", OURS, PORT, 1000).end(), "all\n")
        self.assertEqual(s.end(), "all\n")
        self.assert_ours(s)

    def test_a_capture_has_our_answers(self):
        """But for what was answered before the stack could know that somebody watches."""
        if not shutil.which("tcpdump"):
            self.skipTest("no tcpdump here")
        s = self.serve_peer(self.ours, "many-listen", PORT, 5)
        for _ in range(2):
            self.assertEqual(self.peer(self.other, "many", OURS, PORT, 1).end(), "all\n")
        path = os.path.join(self.ours.dir, "seen.pcap")
        watcher = self.ours.run(lan.UNET, "pcap", "--write", path, shim=False)
        time.sleep(1)
        for _ in range(3):
            self.assertEqual(self.peer(self.other, "many", OURS, PORT, 1).end(), "all\n")
        self.assertEqual(s.end(), "all\n")
        watcher.child.send_signal(signal.SIGINT)
        watcher.end(60)
        syn_acks = self.ours.sh("tcpdump", "-nr", path, "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn|tcp-ack").splitlines()
        self.assertGreaterEqual(len(syn_acks), 2, syn_acks)

    def test_an_interface_is_its_first_stacks_until_a_second_comes(self):
        self.assertEqual((self.seen("if")[0]["stack"], self.seen("if")[0]["stacks"]), (None, 0))
        first = self.serve_peer(self.ours, "many-listen", PORT, 2)
        self.assertTrue(self.ours.program_on_link())
        self.assertEqual(self.peer(self.other, "many", OURS, PORT, 1).end(), "all\n")
        [row] = self.seen("if")
        mac = self.ours.mac()
        self.assertEqual((row["name"], row["address"], row["prefix"], row["gateway"], row["mac"], row["mtu"]),
                         (lan.IFACE, OURS, 24, None, mac, self.mtu))
        self.assertIn("python", row["program"])
        self.assertRegex(row["how"], "socket of its own.*AF_XDP" if lan.MODE == "native" else "rings of its own.*tcx")
        [neighbour] = self.seen("arp")
        mac = self.other.mac()
        self.assertEqual((neighbour["interface"], neighbour["address"], neighbour["mac"], neighbour["stack"]),
                         (lan.IFACE, KERNELS, mac, row["stack"]))

        for kind in ("tcp", "udp"):
            second = self.peer(self.ours, "error", kind, KERNELS, CLOSED)
            self.assertEqual(second.end(), "ECONNREFUSED\n")
            self.assert_ours(second)
        second = self.serve_peer(self.ours, "many-listen", PORT + 1, 1)         # it stays: soon after, one has a socket again
        [row] = self.seen("if")
        self.assertFalse(self.ours.program_on_link())
        self.assertIsNone(row["stack"])
        self.assertRegex(row["how"], "bridge: .*packet socket")
        for p in (first, second):
            p.stop()
        self.ours.until(lambda: self.seen("if")[0]["stacks"] == 0, "the interface is the kernel's again")
        third = self.peer(self.ours, "error", "tcp", KERNELS, CLOSED)   # a socket of its own again
        self.assertEqual(third.end(), "ECONNREFUSED\n")
        self.assert_ours(third)

    def test_a_datagram_from_port_0_is_not_answered(self):
        """Who tries is told so."""
        server = self.serve_peer(self.ours, "answer", PORT, kind="u")
        self.peer(self.other, "nowhere", OURS, PORT).end()
        self.assertEqual(server.end(60), "EINVAL\n")
        self.assert_ours(server)

    def test_what_is_on_the_wire_is_well_formed(self):
        if not shutil.which("tshark"):
            self.skipTest("no tshark here")
        wire = lan.Wire(self.other)
        self.exchanged(self.both_ways(self.ours, self.other, 5), 5)
        self.datagrams(self.other, self.ours)
        self.assertEqual(self.peer(self.ours, "error", "udp", KERNELS, CLOSED).end(), "ECONNREFUSED\n")
        def packets(which):
            return wire.seen(f"ip.src == {OURS} && ({which})", *lan.CHECKS)

        self.assertGreater(len(packets("tcp.len > 0")), 3000)
        self.assertNotEqual(packets("udp"), [])
        self.assertEqual(packets("ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0 || "
                                 "icmp.checksum.status == 0 || _ws.malformed"), [])


@lan.long_run
class LargeMtu(Lan):
    mtu = 3000

    def test_bytes_arrive_as_sent(self):
        self.exchanged(self.both_ways(self.ours, self.other, BIG), BIG)


def main():
    reason = lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
