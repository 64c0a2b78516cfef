#!/usr/bin/env python3
"""Unmodified programs that have ways of their own, over AF_XDP; the kernel is on the other end of the cable."""

import errno
import hashlib
import os
import pwd
import random
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
import lan_test  # noqa: E402

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


class Locked(lan_test.Lan):
    """sshd's child for each connection forbids itself most system calls, and those that make AF_XDP send."""

    def setUp(self):
        reason = lan.missing("ssh", "ssh-keygen") or (None if SSHD else "no sshd here")
        if reason:
            self.skipTest(reason)
        super().setUp()
        os.makedirs("/run/sshd", exist_ok=True)
        for key in ("host", "user"):
            lan.sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(key))
        with open(self.path("config"), "w", encoding="ascii") as f:
            f.write(f"""ListenAddress {lan_test.OURS}:{lan_test.PORT}
                        HostKey {self.path("host")}
                        AuthorizedKeysFile {self.path("user.pub")}
                        PidFile none
                        StrictModes no
                        UsePAM no
                        PermitRootLogin yes
                        LoginGraceTime 0""")

    def path(self, name):
        return os.path.join(self.ours.dir, name)

    def gets(self, data):
        with open(self.path("file"), "wb") as f:
            f.write(data)
        who = f"{pwd.getpwuid(os.getuid()).pw_name}@{lan_test.OURS}"
        c = self.other.run("ssh", "-F", "none", "-i", self.path("user"), "-p", str(lan_test.PORT),
                           "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
                           "-o", "UserKnownHostsFile=/dev/null", who,
                           f"cat {self.path('file')}; sha256sum {self.path('file')} >&2")
        c.end()
        c.files[0].seek(0)
        self.assertTrue(c.files[0].read() == data)
        self.assertIn(hashlib.sha256(data).hexdigest(), c.text(1))

    def test_sshd(self):
        """By a socket of its own, and when another program shares the interface."""
        data = random.Random(4).randbytes(3 << 20)
        s = self.ours.serve(lan_test.PORT, SSHD, "-D", "-e", "-f", self.path("config"))
        self.gets(data)
        self.serve_peer(self.ours, "many-listen", lan_test.CLOSED, 1)
        self.gets(data)
        self.assert_ours(s)


RESOLVES = """
import ctypes, socket
for family in (socket.AF_UNSPEC, socket.AF_INET):
    print(socket.getaddrinfo("%s", 80, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)[0][4][0])
found = ctypes.c_void_p()
print(ctypes.CDLL(None).getaddrinfo(b"%s", b"80", None, ctypes.byref(found)))
""" % (lan_test.KERNELS, lan_test.KERNELS)

PLACES = range(lan_test.PORT, lan_test.PORT + 12)

LISTENS = """
import signal, socket, sys
all = [socket.create_server(("%s", port)) for port in range(%d, %d)]
signal.pause()
""" % (lan_test.KERNELS, PLACES.start, PLACES.stop)
CONNECTS = """
import socket
for port in range(%d, %d):
    print(socket.create_connection(("%s", port)).getsockname()[1])
""" % (PLACES.start, PLACES.stop, lan_test.KERNELS)


class Ports(lan_test.Lan):
    def test_each_destination_has_client_ports_of_its_own(self):
        """RFC 6056 §3.3.3: who sees one of them is not told the next. By chance alone one in 64^11 runs fails."""
        self.other.serve(PLACES[-1], sys.executable, "-c", LISTENS)
        p = self.ours.run(sys.executable, "-c", CONNECTS)
        ports = [int(line) for line in p.end().split()]
        self.assert_ours(p)
        self.assertEqual(len(ports), len(PLACES))
        self.assertNotIn({b - a for a, b in zip(ports, ports[1:])}, ({1}, {0}))


SELF = """
import errno, socket, sys
me, port, closed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((me, port))
for bound in (None, "0.0.0.0", me):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if bound:
        client.bind((bound, 0))
    client.connect((me, port))
    client.send(b"to myself")
    data, address = server.recvfrom(100)
    server.sendto(data, address)
    print(client.recv(100), client.getsockname()[0] == address[0] == me, client.getpeername() == (me, port))
print(errno.errorcode[socket.socket().connect_ex((me, closed))])
print(client.sendto(b"to nobody", (me, closed)))
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(client.sendto(b"to nobody", (me, closed)))
try:
    client.connect((me, closed))
    client.send(b"to nobody")
    client.recv(100)
except OSError as e:
    print(errno.errorcode[e.errno])
"""


class Itself(lan_test.Lan):
    def test_a_host_speaks_to_its_own_address(self):
        """By datagrams that were connected, as those of resolvers are; and ports that nobody has are refused."""
        argv = [sys.executable, "-c", SELF]
        said = [h.run(*argv, h.address, str(lan_test.PORT), str(lan_test.CLOSED)).end() for h in (self.other, self.ours)]
        self.assertEqual(said[0], said[1])


class NoRoute(lan_test.Lan):
    def test_why_the_kernel_is_asked_is_said(self):
        p = self.ours.run(sys.executable, "-c", "import socket; print(socket.socket().connect_ex(('10.99.0.1', 1)))")
        self.assertEqual(p.end(), f"{errno.ENETUNREACH}\n")
        self.assertIn("another host's address, to which no route of unetd's leads", p.text(1))


# What a program that finds out by itself what the path carries goes by.
MTU = """
import errno, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 10, 2)
s.connect((sys.argv[1], 9))
mtu = s.getsockopt(socket.IPPROTO_IP, 14)
print(mtu, s.send(bytes(mtu - 28)))
try:
    s.send(bytes(mtu - 27))
except OSError as e:
    print(errno.errorcode[e.errno])
"""


class Mtu(lan_test.Lan):
    def test_a_connected_udp_socket_knows_the_mtu(self):
        for host, to in (self.other, lan_test.OURS), (self.ours, lan_test.KERNELS):
            p = host.run(sys.executable, "-c", MTU, to)
            self.assertEqual(p.end(), "1500 1472\nEMSGSIZE\n")
        self.assert_ours(p)


class Addresses(lan_test.Lan):
    def test_a_host_whose_only_ipv4_address_is_ours_resolves(self):
        """AI_ADDRCONFIG, meant without hints, too: libc asks the kernel, which has only loopback."""
        p = self.ours.run(sys.executable, "-c", RESOLVES)
        self.assertEqual(p.end(), f"{lan_test.KERNELS}\n{lan_test.KERNELS}\n0\n")

    def listed(self, host, **more):
        p = host.run(sys.executable, os.path.join(lan_test.HERE, "addrs.py"), **more)
        return re.sub(rf"\b{re.escape(host.address)}\b", "ITSELF", p.end())

    def test_addresses_are_listed_as_the_kernel_lists_its_own(self):
        self.other.ip("addr", "flush", "dev", lan.IFACE, "scope", "global")
        self.other.ip("addr", "add", f"{self.other.address}/24", "brd", "+", "dev", lan.IFACE)
        kernels = self.listed(self.other)
        self.assertIn("ITSELF", kernels)
        self.assertEqual(self.listed(self.ours), kernels)
        self.assertNotIn("ITSELF", self.listed(self.ours, shim=False))

    def test_an_interface_that_is_taken_down_shows_as_down(self):
        flags = [f"ioctl {lan.IFACE} 0x{n}\n" for n in ("1043", "1002")]
        self.assertIn(flags[0], self.listed(self.ours))
        self.ours.run(lan.UNET, "if", "down", lan.IFACE, shim=False).end()
        self.assertIn(flags[1], self.listed(self.ours))


if __name__ == "__main__":
    lan_test.main()
