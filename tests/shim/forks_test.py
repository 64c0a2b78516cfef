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


class Forks(Case):
    def test_as_many_as_there_are_places(self):
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
