#!/usr/bin/env python3
"""A program is given a connection by its parent while unetd is replaced: it has the connection as if nothing had happened."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
BUILD = os.environ["UNET_BUILD"]
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from daemons import daemons  # noqa: E402
from ports import free_port  # noqa: E402
from waiting import LIMIT, wait_until  # noqa: E402

SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
os.environ["UNET_DOMAIN"] = f"given-{os.getpid()}"
os.environ.setdefault("UNET_LIBEXEC", os.path.join(BUILD, "unetd"))

SERVER = """
import socket, sys
l = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
c, _ = l.accept()
while b := c.recv(100):
    c.sendall(b)
"""
# The child has the number, and its parent closes it as soon as the child runs.
CLIENT = """
import os, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
os.set_inheritable(c.fileno(), True)
print("ready", flush=True)
input()
pid = os.posix_spawn(sys.executable, [sys.executable, "-c", sys.argv[2], str(c.fileno())], os.environ)
print("given", flush=True)
c.close()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
# It is in a message that nobody reads before we are told.
MESSAGE = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
a, b = socket.socketpair()
socket.send_fds(a, [b"."], [c.fileno()])
c.close()
print("ready", flush=True)
input()
c = socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])
c.sendall(b"from the message")
print(c.recv(100).decode(), flush=True)
"""
CHILD = """
import socket, sys
c = socket.socket(fileno=int(sys.argv[1]))
c.sendall(b"from the child")
print(c.recv(100).decode(), flush=True)
"""
STRANGER = """
import socket
l = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
input()
"""


class Given(unittest.TestCase):
    def setUp(self):
        self.programs = []

    def tearDown(self):
        for p, err in self.programs:
            p.kill()
            p.communicate()
            err.close()

    def start(self, text, *argv):
        err = tempfile.TemporaryFile("w+")
        p = subprocess.Popen((sys.executable, "-c", text, *argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
                             env=dict(os.environ, LD_PRELOAD=SHIM, UNET_LOG="1"))
        self.programs.append((p, err))
        self.assertEqual(p.stdout.readline(), "ready\n")
        return p

    def said(self):
        return "\n".join(os.pread(err.fileno(), os.fstat(err.fileno()).st_size, 0).decode() for _, err in self.programs)

    def test_while_another_program_has_started_unetd_anew(self):
        """Its keeper does not know the connection: the one that does comes later."""
        port = str(free_port())
        self.start(SERVER, port)
        client = self.start(CLIENT, port, CHILD)
        (unetd,), (keeper,) = daemons("unetd"), daemons("unet-keeper")
        os.kill(keeper, signal.SIGSTOP)
        os.kill(unetd, signal.SIGKILL)
        wait_until("unetd to be gone", lambda: unetd not in daemons("unetd"))
        self.start(STRANGER)
        client.stdin.write("go\n")
        client.stdin.flush()
        self.assertEqual(client.stdout.readline(), "given\n", self.said())
        time.sleep(0.4)                 # long enough that the child has asked; the new keeper waits longer for the old one
        os.kill(keeper, signal.SIGCONT)
        self.assertEqual(client.stdout.readline(), "from the child\n", self.said())
        self.assertEqual(client.wait(LIMIT), 0)

    def kill(self, name):
        """Returns when there is another one."""
        (pid,) = daemons(name)
        os.kill(pid, signal.SIGKILL)
        wait_until(f"another {name}", lambda: daemons(name) not in ([], [pid]))

    def in_message(self, *killed):
        port = str(free_port())
        self.start(SERVER, port)
        client = self.start(MESSAGE, port)
        for name in killed:
            self.kill(name)
            time.sleep(1.5)             # who was new is not new any more: it may give up what nobody has
        client.stdin.write("go\n")
        client.stdin.flush()
        self.assertEqual(client.stdout.readline(), "from the message\n", self.said())
        self.assertEqual(client.wait(LIMIT), 0)

    def test_in_a_message_while_a_keeper_dies(self):
        self.in_message("unet-keeper")

    def test_in_a_message_while_keepers_die(self):
        self.in_message("unet-keeper", "unet-keeper")

    def test_in_a_message_while_unetd_and_then_its_keeper_die(self):
        self.in_message("unetd", "unet-keeper")

    def test_in_a_message_while_a_keeper_and_then_unetd_die(self):
        self.in_message("unet-keeper", "unetd", "unet-keeper")


if __name__ == "__main__":
    unittest.main(verbosity=2)
