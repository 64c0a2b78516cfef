#!/usr/bin/env python3
"""What a round trip costs beside programs that are connected and say nothing, in instructions (callgrind counts): beside 500 of them
(UNET_LONG=1) at most 1.05 of what it costs alone, beside 150 at most 1.03."""

import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["UNET_BUILD"]
sys.path.append(os.path.join(os.environ["UNET_SOURCE"], "tests"))
from long_run import LONG  # noqa: E402

PROGRAM = os.path.join(BUILD, "tests", "sock", "sock_beside")
MOST = 1.05 if LONG else 1.03
PEERS = min(500 if LONG else 150, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 40)     # the keeper has some 30 descriptors for each
TIMES = 1000


def instructions(peers):
    with tempfile.TemporaryDirectory() as tmp:
        env = dict(os.environ, UNET_DOMAIN=f"beside-{os.getpid()}-{peers}", UNET_LIBEXEC=os.path.join(BUILD, "unetd"),
                   UNET_CHECK_LEVELS="0")
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp}/out", "--toggle-collect=round_trips",
                              PROGRAM, str(peers), str(TIMES)], capture_output=True, text=True, env=env, check=False, timeout=400)
    if run.returncode != 0:
        raise RuntimeError(run.stdout + run.stderr)
    return max(map(int, re.findall(r"Collected : (\d+)", run.stderr))) / TIMES      # forked children say 0


class Beside(unittest.TestCase):
    def test_round_trip(self):
        alone, beside = instructions(0), instructions(PEERS)
        print(f"a round trip alone {alone:.0f}, beside {PEERS} peers {beside:.0f} instructions: {beside / alone:.3f}", flush=True)
        self.assertLessEqual(beside, alone * MOST)


if __name__ == "__main__":
    sys.exit(unittest.main())
