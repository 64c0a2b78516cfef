#!/usr/bin/env python3
"""Programs that connect, more than some limit has room for: all are served, and what is too much goes by the kernel, which is said."""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BUILD = os.environ["UNET_BUILD"]
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from ports import free_port  # noqa: E402

UNET = os.path.join(BUILD, "tools", "unet")
PROGRAM = os.path.join(BUILD, "tests", "shim", "shim_programs")
PROGRAMS = int(os.environ.get("UNET_PROGRAMS", "150"))
DESCRIPTORS = 2000              # in the keeper each program has some 20
FEW = 8                         # client ports


class Programs(unittest.TestCase):
    runs = 0

    def setUp(self):
        Programs.runs += 1
        self.dir = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.env = dict(os.environ, UNET_CONFIG=os.path.join(self.dir.name, "unet.conf"),
                        UNET_DOMAIN=f"programs-{os.getpid()}-{Programs.runs}")
        self.log = os.path.join(self.dir.name, "log")
        self.configure("")

    def tearDown(self):
        self.dir.cleanup()

    def configure(self, text):
        with open(self.env["UNET_CONFIG"], "w", encoding="ascii") as f:
            f.write(f"[daemon]\nidle = 1\nlog = {self.log}\n{text}")

    def unet(self, *argv):
        return subprocess.run((UNET,) + argv, env=self.env, capture_output=True, text=True, check=False)

    def served(self, what, n, *by):
        """How many of n were answered."""
        with subprocess.Popen([UNET, "run", PROGRAM, "server", str(self.port), str(n)], env=self.env, stdout=subprocess.PIPE,
                              text=True) as server:
            self.assertEqual(server.stdout.readline(), "listens\n")
            done = self.unet(*by, PROGRAM, what, str(self.port), str(n))
            good = re.search(r"^\d+$", done.stdout + done.stderr, re.M)        # stdout is the rows', of unet why
            self.assertIsNotNone(good, done)
            self.assertEqual(server.wait(), 0)
        return int(good.group()), done

    def test_more_programs_than_the_keeper_has_descriptors_for(self):
        """It lives, and with it the connections that there are; who comes then goes by the kernel."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[0]), DESCRIPTORS))
        good, _ = self.served("clients", PROGRAMS, "run")
        self.assertEqual(good, PROGRAMS)
        with open(self.log, encoding="utf-8") as f:
            self.assertNotIn("died", f.read())

    def test_a_program_with_thousands_of_connections_to_one_port(self):
        n = min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 500)
        good, _ = self.served("sockets", n, "run")
        self.assertEqual(good, n)

    def test_without_client_ports_the_kernel_carries_it(self):
        self.configure(f"[limits]\nleases = {FEW}\n")
        good, done = self.served("sockets", FEW + 4, "why", "--json")
        self.assertEqual(good, FEW + 4)
        rows = json.loads(done.stdout)
        said = [(row["carried"], row["why"]) for row in rows]
        self.assertEqual(sum(carried != "kernel" for carried, _ in said), FEW, said)
        self.assertEqual(sum("no client port is left" in why for _, why in said), 4, said)
        with open(self.log, encoding="utf-8") as f:
            self.assertEqual(len(re.findall("no more client ports", f.read())), 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
