#!/usr/bin/env python3
"""unet ss and unet why, asked by root about the programs of a user who has a unetd of his own; another user has taken names that say to be
a third one's."""

import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests", "tools"))
from beside import UNET, Beside, look, wait_until  # noqa: E402

OWNER, SQUATTER, ABSENT = 64011, 64012, 64013
SQUATS = """
import os, socket, sys
held = []
os.setresuid(*[int(sys.argv[2])] * 3)
for i in range(8):
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    held[-1].bind("\\0" + sys.argv[1] + str(i))
    held[-1].listen()
print("has them", flush=True)
sys.stdin.read()
"""


class Root(Beside):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        if subprocess.run([UNET, "--version"], user=OWNER, group=OWNER, extra_groups=[], capture_output=True, check=False).returncode != 0:
            self.skipTest("the build tree is closed to other users")
        super().setUp()

    def his(self, *argv, **who):
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **who)
        child.said = ""
        self.children.append(child)
        self.addCleanup(lambda: [f.close() for f in (child.stdin, child.stdout)])
        return child

    def test_private_unetds_are_seen(self):
        abi = re.search(r"ABI (\d+)", subprocess.run([os.path.join(os.environ["UNET_BUILD"], "unetd", "unetd"), "--version"],
                                                     capture_output=True, text=True, check=True).stdout)[1]
        squatter = self.his(sys.executable, "-c", SQUATS, f"unet/{ABSENT}/{abi}/{os.environ['UNET_DOMAIN']}/", str(SQUATTER))
        self.assertEqual(squatter.stdout.readline(), "has them\n")
        owner = self.his(UNET, "run", "iperf3", "-s", "-p", str(self.port), user=OWNER, group=OWNER, extra_groups=[])
        row = wait_until("his listener", self.listener)
        self.assertEqual(row["uid"], OWNER)
        self.assertIn(str(owner.pid), row["holders"])
        rows = look("why", "--pid", str(owner.pid))
        self.assertEqual([(r["carried"], r["local"]) for r in rows], [("both", f"*:{self.port}")])
        self.assertEqual(set(rows[0]), {"pid", "fd", "protocol", "local", "peer", "carried", "why"})
        owner.terminate()
        owner.wait()
        wait_until("nothing of his", lambda: not look("ss"))


if __name__ == "__main__":
    sys.exit(unittest.main())
