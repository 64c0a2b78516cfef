#!/usr/bin/env python3
"""TCP Fast Open between our stack and the kernel's, over a cable, in both roles; and between two programs on our stack."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, KERNELS, PORT = "10.79.0.1", "10.79.0.2", 5201
BOTH = 3                        # net.ipv4.tcp_fastopen: clients and servers may
FASTOPEN, CONNECT, KEY, NO_COOKIE = 23, 30, 33, 34      # linux/tcp.h

# Says of each connection what came, and whether it came with the SYN.
COMMON = f"""
import errno, select, socket, sys
address, port = sys.argv[1], {PORT}
def with_syn(s): return bool(s.getsockopt(6, socket.TCP_INFO, 104)[5] & 32)
def says(call, *args):
    try: return call(*args)
    except OSError as e: return errno.errorcode[e.errno]
"""
SERVER = COMMON + """
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
for option in sys.argv[3:]:
    l.setsockopt(6, *(int(x) if x.isdigit() else bytes.fromhex(x) for x in option.split("=")))
l.bind((address, port))
l.listen()
for _ in range(int(sys.argv[2])):
    c = l.accept()[0]
    got = c.recv(5)
    print(got.decode(), with_syn(c), flush=True)
    c.sendall(got)
    c.recv(1)
    c.close()
"""
CLIENT = COMMON + """
for i in range(int(sys.argv[2])):
    s = socket.socket()
    sent = s.sendto(b"hello", socket.MSG_FASTOPEN, (address, port))
    print(sent, s.recv(5).decode(), with_syn(s), flush=True)
    s.close()
"""
DEFERRED = COMMON + f"""
for i in range(2):
    s = socket.socket()
    s.setsockopt(6, {CONNECT}, 1)
    s.connect((address, port))
    if i: print(says(s.getpeername), bool(select.select([], [s], [], 0)[1]))
    print(s.send(b"hello"), s.recv(5).decode(), with_syn(s), flush=True)
    s.close()
"""
NONBLOCKING = COMMON + """
for i in range(2):
    s = socket.socket()
    s.setblocking(False)
    print(says(s.sendto, b"hello", socket.MSG_FASTOPEN, (address, port)), end=" ")
    select.select([], [s], [])
    if not i: s.send(b"hello")
    select.select([s], [], [])
    print(s.recv(5).decode(), with_syn(s), flush=True)
    s.close()
"""
REFUSED = COMMON + """
s = socket.socket()
print(says(s.sendto, b"hello", socket.MSG_FASTOPEN, (address, port)))
"""


class FastOpen(lan.Scene):
    def setUp(self):
        self.ours, self.other = self.host("a", OURS), self.host("b", KERNELS)
        lan.cable(self.ours, self.other)
        for h in self.hosts:
            h.sysctl("net.ipv4.tcp_fastopen", BOTH)
        self.ours.become_ours()
        self.other.become_kernels()

    def meet(self, server, client, program, times, *options):
        """What a server and a client say."""
        address = server.address
        s = server.serve(PORT, sys.executable, "-c", SERVER, address, str(times), *options)
        c = client.run(sys.executable, "-c", program, address, str(times))
        said = c.end(), s.end()
        for host, p in ((server, s), (client, c)):
            if host is self.ours:
                self.assert_ours(p)
        return said

    def test_the_kernel_opens_to_us(self):
        told = self.meet(self.ours, self.other, CLIENT, 3, f"{FASTOPEN}=5")
        self.assertEqual(told, ("5 hello False\n" + 2 * "5 hello True\n", "hello False\n" + 2 * "hello True\n"))

    def test_we_open_to_the_kernel(self):
        told = self.meet(self.other, self.ours, CLIENT, 3, f"{FASTOPEN}=5")
        self.assertEqual(told, ("5 hello False\n" + 2 * "5 hello True\n", "hello False\n" + 2 * "hello True\n"))

    def test_two_of_ours(self):
        told = self.meet(self.ours, self.ours, CLIENT, 3, f"{FASTOPEN}=5")
        self.assertEqual(told, ("5 hello False\n" + 2 * "5 hello True\n", "hello False\n" + 2 * "hello True\n"))

    def test_connect_leaves_the_syn_to_the_first_write(self):
        """TCP_FASTOPEN_CONNECT; the kernel says the same."""
        for server, client in ((self.other, self.ours), (self.ours, self.other)):
            said, _ = self.meet(server, client, DEFERRED, 2, f"{FASTOPEN}=5")
            self.assertEqual(said, "5 hello False\nENOTCONN True\n5 hello True\n")

    def test_who_does_not_wait(self):
        for server, client in ((self.other, self.ours), (self.ours, self.other)):
            said, _ = self.meet(server, client, NONBLOCKING, 2, f"{FASTOPEN}=5")
            self.assertEqual(said, "EINPROGRESS hello False\n5 hello True\n")

    def test_without_cookies(self):
        told = self.meet(self.ours, self.other, CLIENT.replace("sent =", f"s.setsockopt(6, {NO_COOKIE}, 1); sent ="), 2,
                         f"{FASTOPEN}=5", f"{NO_COOKIE}=1")
        self.assertEqual(told, (2 * "5 hello True\n", 2 * "hello True\n"))

    def test_a_listener_that_did_not_ask_takes_no_data(self):
        said, _ = self.meet(self.ours, self.other, CLIENT, 2)
        self.assertEqual(said, 2 * "5 hello False\n")

    def test_a_key_that_is_set_outlives_the_listener(self):
        """Its cookies are good for the next that has it, as the first or the second; one's own key is the stack's, and another."""
        old, new = 16 * "a1", 16 * "b2"
        for options, taken in (((f"{KEY}={old}",), False), ((f"{KEY}={old}",), True), ((f"{KEY}={new}{old}",), True),
                               ((f"{KEY}={new}",), True), ((), False)):
            told = self.meet(self.ours, self.other, CLIENT, 1, f"{FASTOPEN}=5", *options)
            self.assertEqual(told, (f"5 hello {taken}\n", f"hello {taken}\n"), options)

    def test_the_key_of_the_system_is_used(self):
        """Cookies are good for the next stack, too, until the key is another."""
        for key, taken in ((1, False), (1, True), (2, False)):
            self.ours.sysctl("net.ipv4.tcp_fastopen_key", f"0000000{key}-00000002-00000003-00000004")
            told = self.meet(self.ours, self.other, CLIENT, 1, f"{FASTOPEN}=5")
            self.assertEqual(told[1], f"hello {taken}\n")

    def test_a_system_that_forbids_it(self):
        self.ours.sysctl("net.ipv4.tcp_fastopen", 0)
        p = self.ours.run(sys.executable, "-c", REFUSED, KERNELS)
        self.assertEqual(p.end(), "ENOTSUP\n")
        said, _ = self.meet(self.ours, self.other, CLIENT, 2, f"{FASTOPEN}=5")
        self.assertEqual(said, 2 * "5 hello False\n")

    def test_nobody_listens(self):
        p = self.ours.run(sys.executable, "-c", REFUSED, KERNELS)
        self.assertEqual(p.end(), "ECONNREFUSED\n")
        self.assert_ours(p)


if __name__ == "__main__":
    if (why := lan.why_not()):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
