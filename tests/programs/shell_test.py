#!/usr/bin/env python3
"""socat that forks and execs, dnsmasq, sockperf under load, and Python's asyncio and subprocess."""

import hashlib
import os
import re
import signal
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from long_run import LONG  # noqa: E402
from ports import free_port  # noqa: E402
from programs.base import SIDES, SOURCE, SUM, Programs, wait_until, which  # noqa: E402

ASYNC = os.path.join(SOURCE, "tests", "programs", "loop.py")

# Names by UDP, many under way at once, and by TCP.
RESOLVER = r"""
import socket, struct, sys
port = int(sys.argv[1])
def question(number, name):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!6H", number, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)
def check(answer, number):
    head = struct.unpack("!6H", answer[:12])
    assert head[0] == number and head[1] & 0x800f == 0x8000 and head[3] == 1, head
    assert answer[-4:] == bytes((10, 1, 2, 3)), answer
udp = socket.socket(type=socket.SOCK_DGRAM)
udp.connect(("127.0.0.1", port))
udp.settimeout(1)
asked = set(range(300))
while asked:
    for n in sorted(asked)[:30]:
        udp.send(question(n, f"n{n}.example.test"))
    try:
        for _ in range(min(30, len(asked))):
            answer = udp.recv(2000)
            n = struct.unpack("!H", answer[:2])[0]
            check(answer, n)
            asked.discard(n)
    except TimeoutError:
        pass
for n in range(20):
    with socket.create_connection(("127.0.0.1", port)) as s:
        q = question(n, f"t{n}.example.test")
        s.sendall(struct.pack("!H", len(q)) + q)
        f = s.makefile("rb")
        check(f.read(struct.unpack("!H", f.read(2))[0]), n)
print("right")
"""


class Socat(Programs):
    def setUp(self):
        super().setUp()
        which("socat")

    def each_side(self, address):
        """What socat puts before each connection, a child, adds what it is sent."""
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                self.serve("socat", f"TCP4-LISTEN:{self.port},bind=127.0.0.1,fork,reuseaddr", address, shim=server)
                for _ in range(3):
                    out, err = self.client("sh", "-c", f"exec socat -t 100 - TCP4:127.0.0.1:{self.port} < data", shim=client)
                    self.assertEqual(hashlib.sha256(out).hexdigest(), SUM, err + self.read("log"))
                    self.assert_ours(err, (server, client))
                self.stop()

    def test_fork_and_exec(self):
        """The connection becomes standard input and output of a program, by a pair of sockets or itself."""
        self.each_side("EXEC:cat")

    def test_fork_and_exec_without_a_pair(self):
        self.each_side("EXEC:cat,nofork")

    def test_fork_and_a_shell(self):
        self.each_side("SYSTEM:cat | cat")

    def test_fork_and_connect(self):
        """To another one."""
        behind = free_port()
        self.serve_at(behind, "socat", f"TCP4-LISTEN:{behind},bind=127.0.0.1,fork,reuseaddr", "EXEC:cat")
        other, self.servers = self.servers, []
        try:
            self.each_side(f"TCP4:127.0.0.1:{behind}")
        finally:
            self.servers = other

    def test_datagrams(self):
        """A child for each sender, and a program for each child."""
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                with open(self.path("log"), "ab") as log:
                    self.start(log, "socat", f"UDP4-LISTEN:{self.port},bind=127.0.0.1,fork,reuseaddr", "EXEC:cat", shim=server)
                wait_until("it listens", lambda: self.is_bound("udp"))
                for i in range(5 if LONG else 2):
                    text = f"datagram {i}"
                    out, _ = self.client("sh", "-c", f"echo {text} | socat -t 3 - UDP4:127.0.0.1:{self.port}", shim=client)
                    self.assertEqual(out.decode(), text + "\n", self.read("log"))
                self.stop()


class Names(Programs):
    def test_dnsmasq(self):
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                self.serve(which("dnsmasq"), "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", f"--port={self.port}",
                           "--listen-address=127.0.0.1", "--bind-interfaces", "--address=/example.test/10.1.2.3",
                           "--pid-file=", *(("--user=root",) if os.geteuid() == 0 else ()), shim=server)
                out, err = self.client(sys.executable, "-c", RESOLVER, str(self.port), shim=client)
                self.assertEqual(out, b"right\n", err + self.read("log"))
                self.assert_ours(err, (server, client))
                self.stop()


class Sockperf(Programs):
    def test_under_load(self):
        """Many datagrams a second, every hundredth of which is answered."""
        which("sockperf")
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                with open(self.path("log"), "ab") as log:
                    s = self.start(log, "sockperf", "sr", "-i", "127.0.0.1", "-p", str(self.port), shim=server)
                wait_until("it listens", lambda: self.is_bound("udp"))
                for seconds in (1, 3, 10):
                    out, _ = self.client("sockperf", "ul", "-i", "127.0.0.1", "-p", str(self.port), "-t", str(seconds), "--mps", "5000",
                                         "--reply-every", "100", shim=client)
                    text = out.decode(errors="replace")
                    if "No valid observations" not in text:
                        break
                counts = re.search(r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)", text)
                self.assertIsNotNone(counts, text)
                self.assertEqual(counts.groups()[1:], ("0", "0"), text)
                s.send_signal(signal.SIGINT)
                s.wait(60)


class Python(Programs):
    def each_side(self, what):
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                self.serve(sys.executable, ASYNC, what, str(self.port), shim=server)
                out, err = self.client(sys.executable, ASYNC, "ask", str(self.port), shim=client)
                self.assertEqual(out, b"right\n", err + self.read("log"))
                self.assert_ours(err, (server, client))
                self.stop()

    def test_asyncio(self):
        self.each_side("loop")

    def test_asyncio_with_children(self):
        self.each_side("children")

    def test_subprocess(self):
        self.each_side("subprocess")


if __name__ == "__main__":
    unittest.main(verbosity=2)
