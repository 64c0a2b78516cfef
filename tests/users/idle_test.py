#!/usr/bin/env python3
"""When the numbers of a stack's channels run out, one that nothing uses goes, and none that anything uses."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.environ["UNET_BUILD"]

SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
LIMIT = int(os.environ.get("UNET_TEST_LIMIT", "120"))  # for what must come
NUMBERS = 4

SERVER = r"""
import selectors, socket
sel = selectors.DefaultSelector()
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen(64)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(l.getsockname())
sel.register(l, selectors.EVENT_READ)
sel.register(u, selectors.EVENT_READ)
print(l.getsockname()[1], flush=True)
while True:
    for key, _ in sel.select():
        s = key.fileobj
        if s is l:
            sel.register(l.accept()[0], selectors.EVENT_READ)
        elif s is u:
            data, who = u.recvfrom(2048)
            u.sendto(data, who)
        else:
            data = s.recv(65536)
            if data:
                s.sendall(data)
            else:
                sel.unregister(s)
                s.close()
"""

CLIENT = r"""
import os, random, select, socket, sys, time
port, what = int(sys.argv[1]), sys.argv[2]
said = lambda: bool(select.select([sys.stdin], [], [], 0)[0])

def echo(s):
    data = os.urandom(random.choice((1, 1000, 70000)))
    s.sendall(data)
    back = b""
    while len(back) < len(data):
        piece = s.recv(65536)
        assert piece, (len(back), len(data))
        back += piece
    assert back == data

def once():
    with socket.create_connection(("127.0.0.1", port)) as s:
        echo(s)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""

def until_said(do, pause):
    while not said():
        do()
        print("done", flush=True)
        time.sleep(pause())
    sys.stdin.readline()

if what == "connects":            # again and again until it is told; then it is there, and does nothing
    until_said(once, lambda: 0.1)
    sys.stdin.readline()
elif what == "keeps":             # a connection, which is used now and then; it ends, and then the client
    with socket.create_connection(("127.0.0.1", port)) as s:
        until_said(lambda: echo(s), lambda: 0.2)
    sys.stdin.readline()
elif what == "silent":            # a connection that is not used
    with socket.create_connection(("127.0.0.1", port)) as s:
        echo(s)
        print("done", flush=True)
        sys.stdin.readline()
        echo(s)
    sys.stdin.readline()
elif what == "datagrams":         # each is answered: where nothing is lost, none is
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.connect(("127.0.0.1", port))
    u.settimeout(60)
    def one():
        data = os.urandom(40)
        u.send(data)
        assert u.recv(100) == data
    until_said(one, lambda: 1 + random.uniform(-0.01, 0.03))
elif what == "races":             # just when its channel has been quiet for so long that it may yield
    until_said(once, lambda: 1 + random.uniform(-0.01, 0.03))
"""


class Program:
    def __init__(self, env, text, *args):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".py")
        self.file.write(text)
        self.file.flush()
        self.out = tempfile.TemporaryFile("w+")
        self.log = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen([sys.executable, self.file.name, *args], env=env, stdin=subprocess.PIPE, stdout=self.out,
                                  stderr=self.log, text=True)

    @staticmethod
    def text(f):
        return os.pread(f.fileno(), 1 << 24, 0).decode()

    def done(self):
        return self.text(self.out).count("done")

    def accelerated(self):
        return self.text(self.log).count(": ours: the peer is on the fabric")

    def say(self):
        self.p.stdin.write("\n")
        self.p.stdin.flush()

    def is_over(self):
        return self.p.poll() is not None

    def end(self):
        if not self.is_over():
            self.p.kill()
        self.p.wait()
        self.p.stdin.close()
        for f in (self.out, self.log, self.file):
            f.close()


class Idle(unittest.TestCase):
    def setUp(self):
        self.programs = []
        self.config = tempfile.NamedTemporaryFile("w", suffix=".conf")
        self.config.write(f"[limits]\nchannels_per_stack = {NUMBERS}\n")
        self.config.flush()
        self.env = dict(os.environ, LD_PRELOAD=SHIM, UNET_LOG="1", UNET_DOMAIN=f"idle-{os.getpid()}-{self._testMethodName[-8:]}",
                        UNET_LIBEXEC=os.path.join(BUILD, "unetd"), UNET_CONFIG=self.config.name)
        server = self.start(SERVER)
        self.until(lambda: Program.text(server.out).endswith("\n"), "the server listens")
        self.port = Program.text(server.out).strip()

    def tearDown(self):
        for p in self.programs:
            p.end()
        self.config.close()

    def start(self, text, *args):
        self.programs.append(Program(self.env, text, *args))
        return self.programs[-1]

    def client(self, what):
        return self.start(CLIENT, self.port, what)

    def until(self, condition, what):
        until = time.monotonic() + LIMIT
        while not condition():
            for p in self.programs:
                self.assertFalse(p.is_over() and p.p.returncode, Program.text(p.log)[-3000:])
            self.assertLess(time.monotonic(), until, what + "".join("\n" + Program.text(p.log)[-800:] for p in self.programs))
            time.sleep(0.02)

    def test_who_comes_later_gets_a_number_too(self):
        """Three times as many as there are numbers, all of whom stay: each is on the fabric at last."""
        for _ in range(3 * NUMBERS):
            c = self.client("connects")
            self.until(lambda c=c: c.accelerated() and c.done() > 2, "it is accelerated")
            c.say()

    def test_what_is_in_use_stays(self):
        """One connection each, some of which nobody uses: who comes gets no number before one has ended."""
        keep = [self.client("keeps" if i % 2 else "silent") for i in range(NUMBERS)]
        self.until(lambda: all(k.accelerated() and k.done() for k in keep), "they are accelerated")
        c = self.client("connects")
        self.until(lambda: c.done() > 30, "it goes by the kernel")
        self.assertEqual(c.accelerated(), 0)
        keep[1].say()
        self.until(c.accelerated, "it is accelerated once one has ended")
        before = keep[3].done()
        self.until(lambda: keep[3].done() > before + 5, "the others go on")
        for k in (keep[0], keep[2], keep[3]):
            k.say()
            k.say()
            self.until(k.is_over, "it ends well")

    def test_nothing_is_lost_where_both_come_at_once(self):
        """A channel is wanted again just as it yields."""
        n = NUMBERS + 3
        races = [self.client("races") for _ in range(n)] + [self.client("datagrams") for _ in range(n)]
        self.until(lambda: all(r.done() >= 8 for r in races), "all go on")
        for r in races:
            r.say()
            self.until(r.is_over, "it ends well")
        self.assertGreater(sum(r.accelerated() for r in races), 2 * n)


if __name__ == "__main__":
    unittest.main(verbosity=2)
