#!/usr/bin/env python3
"""As many children as a stack has places for, on one connection; the fork after the last one is refused, and said."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from shim_test import BUILD, Case  # noqa: E402

FORKS = os.path.join(BUILD, "tests", "shim", "shim_forks")
PLACES = 4095                           # STACK_PROCS without that of messages under way
OTHERS = 50                             # unetd, the keeper, the server, and their threads
SERVER = """
import socket, sys
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", int(sys.argv[1])))
l.listen(4)
c, _ = l.accept()
while b := c.recv(100):
    c.sendall(b)
"""


def are_allowed(n):
    """Whether there may be so many children beside what there is: RLIMIT_NPROC and pids.max refuse with EAGAIN as well."""
    children = []
    stays, ends = os.pipe()
    try:
        while len(children) < n:
            pid = os.fork()
            if pid == 0:
                os.close(ends)
                os.read(stays, 1)
                os._exit(0)
            children.append(pid)
    except BlockingIOError:
        pass
    os.close(ends)
    os.close(stays)
    for pid in children:
        os.waitpid(pid, 0)
    return len(children) == n


class Forks(Case):
    def test_as_many_as_there_are_places(self):
        if not are_allowed(PLACES + OTHERS):
            self.skipTest("no room for so many processes here")
        with tempfile.TemporaryDirectory() as tmp:
            env = {"UNET_CONFIG": os.path.join(tmp, "unet.conf"), "UNET_DOMAIN": os.environ["UNET_DOMAIN"] + "-forks"}
            with open(env["UNET_CONFIG"], "w", encoding="utf-8") as f:
                f.write("[limits]\nprocesses = 10000\n")
            self.server(sys.executable, "-c", SERVER, str(self.port), env=env)
            client = self.run_it(FORKS, str(self.port), env=env)
            self.assertEqual(int(client.end()), PLACES - 1)         # and their parent
            self.assertEqual(client.said("ours"), 1)
            self.assertGreater(client.said("refused: the stack has no slot for one more process"), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
