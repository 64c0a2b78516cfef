#!/usr/bin/env python3
"""Ordinary programs at both ends, many of them, and what befalls a host in the middle of it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
import lan_test  # noqa: E402

MANY = 10000
NGINX = """daemon off; master_process {master}; worker_processes {workers}; pid {dir}/pid; error_log stderr notice; user root;
events {{ worker_connections 512; }}
http {{ access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
       scgi_temp_path {dir}/s; sendfile {sendfile}; server {{ listen {address}:{port}; root {dir}; }} }}
"""
BUSY = {"TCP Zero Window segment", "TCP window specified by the receiver is now completely full",       # either side's slow reader
        "D-SACK Sequence", "This frame is a (suspected) out-of-order segment"}  # who waited for the processor, and was waited for
WARNING = 0x600000                      # tshark's severity, of which each is 0x200000 more than the one below


class Peers(lan_test.Lan):
    def test_ten_thousand_connections(self):
        s = self.serve_peer(self.ours, "many-listen", lan_test.PORT, MANY)
        self.assertEqual(self.peer(self.other, "many", lan_test.OURS, lan_test.PORT, MANY).end(lan.TRANSFER), "all\n")
        self.assertEqual(s.end(lan.TRANSFER), "all\n")
        self.assert_ours(s)

    def goes_on(self, server, client, what):
        """Bytes each way, and `what` in the middle of it."""
        pair = self.both_ways(server, client, 10, 0.05, goes_on=True)
        self.has_come(5)
        what()
        self.exchanged(pair, 10)

    def other_mac(self):
        mac = f"02:00:00:00:{os.getpid() >> 8 & 255:02x}:{int(time.monotonic() * 10) & 255:02x}"
        self.other.ip("link", "set", lan.IFACE, "address", mac)

    def test_the_neighbour_has_another_mac(self):
        """It says nothing of it: that it does not hear us has to be found out."""
        self.goes_on(self.ours, self.other, self.other_mac)

    @lan.long_run
    def test_the_neighbour_has_another_mac_and_a_client_of_ours(self):
        self.goes_on(self.other, self.ours, self.other_mac)

    def nginx(self, host, sendfile):
        data = os.urandom(8 << 20)
        with open(os.path.join(host.dir, "file"), "wb") as f:
            f.write(data)
        conf = os.path.join(host.dir, "nginx.conf")
        with open(conf, "w", encoding="ascii") as f:
            f.write(NGINX.format(dir=host.dir, address=host.address, port=lan_test.PORT, sendfile=sendfile, master="on", workers=1))
        os.chmod(host.dir, 0o755)
        return host.serve(lan_test.PORT, "nginx", "-c", conf, "-p", host.dir), data

    def curl(self, server, client, sendfile):
        """The same file eight times at once, over connections that serve several requests."""
        if not shutil.which("nginx"):
            self.skipTest("no nginx here")
        s, data = self.nginx(server, sendfile)
        got = [os.path.join(client.dir, f"got{i}") for i in range(8)]
        url = f"http://{server.address}:{lan_test.PORT}/file"
        words = [w for name in got for w in ("-o", name, url)]
        c = client.run("curl", "-sS", "-f", "--max-time", "240", "--parallel", "--parallel-max", "4", *words)
        c.end()
        for name in got:
            with open(name, "rb") as f:
                self.assertTrue(f.read() == data, name)
        self.assert_ours(s if server is self.ours else c)
        s.child.send_signal(signal.SIGTERM)
        s.end(ok=None)

    def test_our_curl_from_the_kernels_nginx(self):
        self.curl(self.other, self.ours, "on")

    def test_curl_from_our_nginx(self):
        self.curl(self.ours, self.other, "off")

    def test_curl_from_our_nginx_by_sendfile(self):
        self.curl(self.ours, self.other, "on")

    @lan.long_run
    def test_eight_streams_both_ways(self):
        for server, client in ((self.ours, self.other), (self.other, self.ours)):
            for more in ((), ("-R",)):
                self.iperf3(server, client, "-P", "8", *more)


class Lwip(lan_test.Lan):
    """lwIP is the other host, in real time."""
    program = os.path.join(lan.BUILD, "tests", "netns", "lwip_host")

    def setUp(self):
        if not os.path.exists(self.program):
            self.skipTest("no lwIP here")
        self.ours, self.other = self.host("a", lan_test.OURS), self.host("b", lan_test.KERNELS)
        lan.cable(self.ours, self.other)
        self.ours.become_ours()

    def lwip(self, *argv):
        lwip_leaks = ("env", "ASAN_OPTIONS=detect_leaks=0")
        return self.other.run(*lwip_leaks, self.program, lan.IFACE, lan_test.KERNELS, *map(str, argv))

    def test_bytes_there_and_back(self):
        mirror = self.lwip("mirror", lan_test.PORT)
        self.other.until(lambda: "listens" in mirror.text(), "lwIP")
        for _ in range(3):
            c = self.peer(self.ours, "reflect", lan_test.KERNELS, lan_test.PORT, 10)
            self.assertEqual(c.end(lan.TRANSFER), "all\n")
            self.assert_ours(c)

    def test_bytes_there_and_back_by_its_own_client(self):
        s = self.serve_peer(self.ours, "mirror", lan_test.PORT)
        for _ in range(3):
            self.assertEqual(self.lwip("reflect", lan_test.OURS, lan_test.PORT, 5).end(lan.TRANSFER), "all\n")
        self.assert_ours(s)


class Wire(lan_test.Lan):
    """What tshark has to say, its checksum checks on, about our traffic, and about the kernel's of the same kind."""
    how = {}

    def setUp(self):
        if not shutil.which("tshark"):
            self.skipTest("no tshark here")

    def captured(self, ours):
        """What is wrong with the packets of one run, by tshark's message."""
        self.ours, self.other = (self.host(f"{letter}{int(ours)}", address)
                                 for letter, address in (("a", lan_test.OURS), ("b", lan_test.KERNELS)))
        lan.cable(self.ours, self.other)
        if ours:
            self.ours.become_ours(**self.how)
        else:
            self.ours.become_kernels()
        self.other.become_kernels()
        wire = lan.Wire(self.other)
        for server, client in ((self.ours, self.other), (self.other, self.ours)):
            s = server.serve(lan_test.PORT, *lan_test.PEER, "sink", server.address, str(lan_test.PORT))
            self.assertEqual(self.peer(client, "source", server.address, lan_test.PORT, 3).end(), s.end())
            s = self.serve_peer(server, "many-listen", lan_test.PORT, 20)
            self.peer(client, "many", server.address, lan_test.PORT, 20).end()
            s.end()
            s = self.serve_peer(server, "echo", lan_test.PORT, kind="u")
            self.peer(client, "ask", server.address, lan_test.PORT, 1, 1472, 4000, 20000).end()
            for kind in ("tcp", "udp"):
                self.peer(client, "error", kind, server.address, lan_test.CLOSED).end()
            s.stop()
        wire.close()
        source = f"(ip.src == {lan_test.OURS} || arp.src.proto_ipv4 == {lan_test.OURS})"

        def shown(which, *more):
            return subprocess.run(["tshark", "-r", wire.file, *lan.CHECKS, "-Y", f"{source} && ({which})", *more], text=True,
                                  capture_output=True, check=True).stdout

        self.assertGreater(len(shown("tcp.len > 0").splitlines()), 2000)
        if ours:        # one segment of 65,536 of the kernel's has 0xffff for 0, which tshark calls wrong (RFC 1624)
            self.assertEqual(shown("ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0 || "
                                   "icmp.checksum.status == 0 || _ws.malformed"), "")
        said = shown(f"_ws.expert.severity >= {WARNING}", "-T", "fields", "-E", "separator=|", "-E", "aggregator=|", "-e",
                     "_ws.expert.message")
        return {re.sub(r"[\d.]+", "N", m) for line in said.splitlines() for m in line.split("|") if m}

    def test_nothing_is_wrong_that_is_not_with_the_kernel(self):
        mine, theirs = self.captured(True), self.captured(False)
        self.assertLessEqual(mine, theirs | BUSY, json.dumps([sorted(mine), sorted(theirs)]))


@lan.long_run
class WireByAfXdp(Wire):
    how = {"mode": "native"}


@lan.long_run
class WireByTheBridge(Wire):
    how = {"provider": "packet"}


if __name__ == "__main__":
    lan_test.main()
