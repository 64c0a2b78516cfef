#!/usr/bin/env python3
"""A socket that two processes have is one socket: every call as the first one on it, in each role that it has, over the kernel and
over the shim. The scenes come from the tables of shared.c."""

import os
import re
import subprocess
import tempfile
import unittest

BUILD = os.environ["UNET_BUILD"]
SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
SHARED = os.path.join(BUILD, "tests", "shim", "shim_shared")
PATIENCE = "20000"                # ms, for what has to travel on a busy machine

os.environ.setdefault("UNET_LIBEXEC", os.path.join(BUILD, "unetd"))
os.environ["UNET_DOMAIN"] = f"shared-{os.getpid()}"

# Scenes that are played and not compared, and why.
KNOWN = (
    (r"\w+ ended shutdown-\w+, bind$", "Linux gives a connection that has ended at both sides another name; here it keeps its own"),
    (r"\w+ udp-bound disconnect, connect$", "what came before is lost when the socket turns to a peer that is not on the fabric"),
)


def known(line):
    return any(re.match(pattern, line.split(":")[0]) for pattern, _ in KNOWN)


class Shared(unittest.TestCase):
    maxDiff = None

    def test_each_call_in_each_role(self):
        with tempfile.NamedTemporaryFile("w+") as kernel:
            subprocess.run([SHARED], stdout=kernel, check=True)
            kernel.seek(0)
            expected = kernel.read().splitlines()
            done = subprocess.run([SHARED, kernel.name, PATIENCE], env=dict(os.environ, LD_PRELOAD=SHIM, UNET_LOG="1"),
                                  capture_output=True, text=True, errors="replace", check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr[-1000:])
        self.assertGreater(len(expected), 10000)
        differ = [f"{a}\n    over the shim {b}" for a, b in zip(expected, done.stdout.splitlines()) if a != b and not known(a)]
        self.assertEqual(len(expected), len(done.stdout.splitlines()))
        self.assertEqual(differ, [], "\n".join(differ[:40]))
        ours = len(re.findall(r"^unet: pid \d+ fd -?\d+ \w+: (?:ours|both): ", done.stderr, re.M))
        self.assertGreater(ours, len(expected))


if __name__ == "__main__":
    unittest.main(verbosity=2)
