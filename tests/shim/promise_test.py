#!/usr/bin/env python3
"""connect() to a server that was connected to before does not wait for it, as over the kernel's loopback."""

import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from shim_test import UNET, Case, wait_until  # noqa: E402

SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
while True:
    it, _ = listener.accept()
    with it:
        while data := it.recv(100):
            it.sendall(data.upper())
            if data == b"close":
                listener.close()
                sys.exit()
"""
CLIENT = """
import os, socket, sys
held = []
for line in sys.stdin:
    what, *more = line.split()
    try:
        if what == "connect":
            held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
            print("connected", flush=True)
        elif what == "ask":
            held[-1].sendall(more[0].encode())
        elif what == "read":
            print(held.pop(0).recv(100).decode(), flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
"""


class Promise(Case):
    def setUp(self):
        super().setUp()
        self.server = self.run_it(sys.executable, "-c", SERVER, str(self.port))
        self.until_it_listens()
        there, self.orders = os.pipe()
        self.client = self.run_it(sys.executable, "-c", CLIENT, str(self.port), stdin=there)
        os.close(there)
        self.lines = []
        self.does("connect", "connected")
        self.does("ask hello")
        self.does("read", "HELLO")

    def tearDown(self):
        os.close(self.orders)
        super().tearDown()

    def until_it_listens(self):
        rows = lambda: json.loads(self.run_it(UNET, "ss", "--listening", "--json", shim=False).end(ok=None) or "[]")
        wait_until("a listener", lambda: any(row["local"] == f"127.0.0.1:{self.port}" for row in rows()))

    def does(self, order, *said):
        os.write(self.orders, f"{order}\n".encode())
        self.lines += said
        wait_until(" ".join((order, *said)), lambda: len(self.client.text().split()) >= len(self.lines))
        self.assertEqual(self.client.text().split(), self.lines)

    def promised(self):
        return json.loads(self.run_it(UNET, "stat", "--json", shim=False).end())["counters"].get("TCP_PROMISED", 0)

    def test_a_server_that_is_stopped(self):
        os.kill(self.server.child.pid, signal.SIGSTOP)
        for _ in range(3):
            self.does("connect", "connected")
            self.does("ask more")
        os.kill(self.server.child.pid, signal.SIGCONT)
        self.does("read", "MORE")
        self.does("read", "MORE")
        self.does("read", "MORE")
        self.assertEqual(self.promised(), 3)

    def test_a_server_that_is_killed_meanwhile(self):
        os.kill(self.server.child.pid, signal.SIGSTOP)
        self.does("connect", "connected")
        self.does("ask more")
        os.kill(self.server.child.pid, signal.SIGKILL)
        self.does("read", "ConnectionResetError")

    def test_a_server_that_has_left(self):
        self.does("connect", "connected")
        self.does("ask close")
        self.does("read", "CLOSE")
        self.server.end()
        self.does("connect", "ConnectionRefusedError")


if __name__ == "__main__":
    unittest.main(verbosity=2)
