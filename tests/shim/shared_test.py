#!/usr/bin/env python3
"""A socket that two processes have is one socket: every call as the first one on it, in each role that it has, over the kernel and
over the shim. The scenes come from the tables of shared.c. One of ONE_OF is played, chosen by its name.

    shared_test.py [ONE_OF]
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["UNET_BUILD"]
SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
SHARED = os.path.join(BUILD, "tests", "shim", "shim_shared")
ONE_OF = int(sys.argv.pop()) if sys.argv[-1].isdigit() else 48
PATIENCE = "20000"                # ms, for what has to travel on a busy machine

os.environ.setdefault("UNET_LIBEXEC", os.path.join(BUILD, "unetd"))
os.environ["UNET_SHARED_OF"] = str(ONE_OF)
os.environ["UNET_DOMAIN"] = f"shared-{os.getpid()}"

OTHER_NAME = "Linux gives a connection that has ended at both sides, or was reset, another name; here it keeps its own"

# Scenes that are played and not compared, and why.
KNOWN = (
    (r"[\w-]+ ended shutdown-\w+, bind$", OTHER_NAME),
    (r"[\w-]+ (waits-)?(over|reset) (close, )?bind(-taken)?$", OTHER_NAME),
    (r"[\w-]+ udp-bound disconnect, connect$", "what came before is lost when the socket turns to a peer that is not on the fabric"),
    (r"dup (waits-)?refused (pass-on|spawn|spawn-as-output|vfork-exec|exec-cleared|fexecve|pidfd-getfd)$",
     "who gets a copy in another process is not told of the error; who had it is"),
    (r"watched [\w-]+ disconnect$", "an edge of what connect() to AF_UNSPEC did in another process does not come; the level is there"),
    (r"[\w-]+ (?!(waits-)?(new|bound) )[\w-]+ (aio_(read|write|cancel)|lio_listio-\w+)$",
     "libc reads and writes for POSIX AIO in threads whose calls nobody sees: unet why says so (libunet_preload(7))"),
    (r"watched (waits-)?udp send-oob$", "Linux binds a datagram socket before it refuses to send urgent data"),
)


def known(line):
    return any(re.match(pattern, line.split(":")[0]) for pattern, _ in KNOWN)


class Shared(unittest.TestCase):
    maxDiff = None

    def test_each_call_in_each_role(self):
        expected = subprocess.run([SHARED], stdout=subprocess.PIPE, text=True, errors="replace", check=True).stdout.splitlines()
        with tempfile.NamedTemporaryFile("w", errors="replace") as kernel:
            kernel.writelines(f"{line.split(':')[0]}: ?\n" if known(line) else line + "\n" for line in expected)
            kernel.flush()
            done = subprocess.run([SHARED, kernel.name, PATIENCE], env=dict(os.environ, LD_PRELOAD=SHIM, UNET_LOG="1"),
                                  capture_output=True, text=True, errors="replace", check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-1000:] + done.stderr[-1000:])
        self.assertGreater(len(expected), 38000 / ONE_OF)
        differ = [f"{a}\n    over the shim {b}" for a, b in zip(expected, done.stdout.splitlines()) if a != b and not known(a)]
        self.assertEqual(len(expected), len(done.stdout.splitlines()))
        self.assertEqual(differ, [], "\n".join(differ[:40]))
        ours = len(re.findall(r"^unet: pid \d+ fd -?\d+ \w+: (?:ours|both): ", done.stderr, re.M))
        self.assertGreater(ours, len(expected))


if __name__ == "__main__":
    unittest.main(verbosity=2)
