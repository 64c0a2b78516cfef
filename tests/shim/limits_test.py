#!/usr/bin/env python3
"""Limits of unet.conf(5), run into: what comes next goes by the kernel and works, nothing that there was is harmed, and `unet why`,
`unet stat` and unetd's log say so."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BUILD = os.environ["UNET_BUILD"]
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from ports import free_port  # noqa: E402

UNET = os.path.join(BUILD, "tools", "unet")
PATIENCE = 300

# Echoes what comes on each connection, whatever carries it.
SERVER = """
import selectors, socket, sys
with selectors.DefaultSelector() as s:
    for port in sys.argv[1:]:
        l = socket.socket()
        l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        l.bind(("127.0.0.1", int(port)))
        l.listen(64)
        s.register(l, selectors.EVENT_READ, True)
    print("ready", flush=True)
    while True:
        for key, _ in s.select():
            if key.data:
                s.register(key.fileobj.accept()[0], selectors.EVENT_READ, False)
            elif b := key.fileobj.recv(100):
                key.fileobj.sendall(b)
            else:
                s.unregister(key.fileobj)
                key.fileobj.close()
"""

# A child for each connection, which echoes; says the numbers of the children.
FORKS = """
import os, signal, socket, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1])))
l.listen(64)
print("ready", flush=True)
while True:
    with l.accept()[0] as c:
        pid = os.fork()
        if pid == 0:
            l.close()
            while b := c.recv(100):
                if b == b"exec":
                    os.execlp("sleep", "sleep", "1000")
                c.sendall(b)
            os._exit(0)
        print(pid, flush=True)
"""

# Asks COUNT children; when a line has come, says how many connections have ended, and how many answer.
ASKS = """
import socket, sys
c = [socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=200) for _ in range(int(sys.argv[1]))]
for s in c:
    s.sendall(b"first")
    assert s.recv(100) == b"first"
print("answered", flush=True)
sys.stdin.readline()
c[-3].sendall(b"exec")
ended = 0
for s in c[-3:]:
    try:
        ended += s.recv(100) == b""
    except ConnectionResetError:
        ended += 1
for s in c[:-3]:
    s.sendall(b"second")
    assert s.recv(100) == b"second"
print(ended, flush=True)
"""

# COUNT connections at once, to each of the ports: all are answered, twice; the second time when a line has come.
CLIENT = """
import socket, sys
count, ports = int(sys.argv[1]), sys.argv[2:]
c = [socket.create_connection(("127.0.0.1", int(p)), timeout=200) for p in ports for _ in range(count)]
for text in (b"first", b"second"):
    for s in c:
        s.sendall(text)
        assert s.recv(100) == text
    if text == b"first":
        print("answered", flush=True)
        sys.stdin.readline()
"""

# Ten connections, one after the other; says after each how long the program has run.
TIMES = """
import socket, time
begin = time.monotonic()
with socket.create_server(("127.0.0.1", 0)) as l:
    for _ in range(10):
        with socket.create_connection(l.getsockname()) as c, l.accept()[0] as s:
            c.sendall(b"x")
            assert s.recv(1) == b"x"
        print(time.monotonic() - begin)
"""


class Limits(unittest.TestCase):
    runs = 0

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.ports = [str(free_port()) for _ in range(2)]
        Limits.runs += 1
        self.log = os.path.join(self.dir.name, "log")
        self.env = dict(os.environ, UNET_CONFIG=os.path.join(self.dir.name, "unet.conf"),
                        UNET_DOMAIN=f"limits-{os.getpid()}-{Limits.runs}")

    def limit(self, text):
        with open(self.env["UNET_CONFIG"], "w", encoding="utf-8") as f:
            f.write(f"[daemon]\nidle = 1\nlog = {self.log}\n[limits]\n{text}\n")

    def begin(self, text, *args, by=(UNET, "run")):
        p = subprocess.Popen((*by, sys.executable, "-c", text, *map(str, args)), env=self.env, text=True, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, p)
        return p

    def end(self, p):
        p.kill()
        p.communicate()

    def server(self, *ports):
        self.assertEqual(self.begin(SERVER, *ports).stdout.readline(), "ready\n")

    def client(self, *args):
        """One whose connections stay."""
        c = self.begin(CLIENT, *args)
        self.assertEqual(c.stdout.readline(), "answered\n")
        return c

    def goes_on(self, c):
        c.communicate("\n", timeout=PATIENCE)
        self.assertEqual(c.returncode, 0)

    def why(self, text, *args):
        """What carried the program's sockets, and why, in any order."""
        done = subprocess.run((UNET, "why", "--json", sys.executable, "-c", text + "print('done')", *map(str, args)), env=self.env,
                              text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
        self.assertIn("done\n", done.stderr)    # the program's output, beside the rows
        return [(row["carried"], row["why"]) for row in json.loads(done.stdout)]

    def kernels(self, said):
        return [why for carried, why in said if carried == "kernel"]

    def assert_said(self, whys, count, text, log):
        self.assertEqual(len(whys), count, whys)
        for why in whys:
            self.assertIn(text, why)
        with open(self.log, encoding="utf-8") as f:
            self.assertIn(log, f.read())

    def counted(self, name):
        done = subprocess.run((UNET, "stat", "--json"), env=self.env, text=True, capture_output=True, timeout=PATIENCE,
                              check=True)
        return json.loads(done.stdout)["counters"][name]

    def test_channels_of_a_stack(self):
        self.limit("channels_per_stack = 1")
        self.server(self.ports[0])
        first = self.client(2, self.ports[0])
        self.assertEqual(self.counted("SOCK_LIMITED"), 0)
        second = self.client(3, self.ports[0])
        self.assertEqual(self.counted("SOCK_LIMITED"), 3)
        self.assert_said(self.kernels(self.why(CLIENT, 4, self.ports[0])), 4, "[limits]", "no room for a channel")
        self.goes_on(first)
        self.goes_on(second)

    def test_listeners(self):
        self.limit("listeners = 1")
        self.server(*self.ports)
        self.assertEqual(self.counted("SOCK_LIMITED"), 1)
        whys = self.kernels(self.why(CLIENT, 2, *self.ports))
        self.assert_said(whys, 2, "no listener on the fabric has this port", "no room for a listening port")

    def test_stacks(self):
        self.limit("stacks = 1")
        self.server(self.ports[0])
        self.assert_said(self.kernels(self.why(CLIENT, 2, self.ports[0])), 2, "[limits]", "no room for a stack")

    def test_client_ports(self):
        self.limit("leases = 4")
        self.server(self.ports[0])
        whys = self.kernels(self.why(CLIENT, 10, self.ports[0]))
        self.assert_said(whys, 6, "no client port is left", "no more client ports")

    def test_processes(self):
        """A second process has a stack of its own: it asks for a slot as well."""
        self.limit("processes = 1")
        self.server(self.ports[0])
        self.assert_said(self.kernels(self.why(CLIENT, 2, self.ports[0])), 2, "[limits]", "no room for a stack")

    def test_children_beyond_processes(self):
        """They have what they inherited, and one of them that is killed, or becomes another program, is noticed, though
        unetd has no room for any."""
        self.limit("processes = 4")
        server = self.begin(FORKS, self.ports[0])
        self.assertEqual(server.stdout.readline(), "ready\n")
        client = self.begin(ASKS, 8, self.ports[0])
        children = [int(server.stdout.readline()) for _ in range(8)]
        self.addCleanup(os.kill, children[-3], signal.SIGKILL)
        self.assertEqual(client.stdout.readline(), "answered\n")
        with open(self.log, encoding="utf-8") as f:
            self.assertIn("no room for a process", f.read())
        for pid in children[-2:]:
            os.kill(pid, signal.SIGKILL)
        out, _ = client.communicate("\n", timeout=PATIENCE)
        self.assertEqual((client.returncode, out), (0, "3\n"))

    def test_a_keeper_that_cannot_run(self):
        """As where its user may have no more processes. The first socket asks for one, and waits for the answer; the others do not."""
        os.symlink(os.path.join(BUILD, "unetd", "unetd"), os.path.join(self.dir.name, "unetd"))
        os.symlink("/bin/false", os.path.join(self.dir.name, "unet-keeper"))
        self.env["UNET_LIBEXEC"] = self.dir.name
        self.limit("")
        p = self.begin(TIMES)
        out, _ = p.communicate(timeout=PATIENCE)
        self.assertEqual(p.returncode, 0)
        after = [float(line) for line in out.split()]
        self.assertEqual(len(after), 10)
        self.assertLess(after[-1], 2 * after[0], out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
