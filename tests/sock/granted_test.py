#!/usr/bin/env python3
"""What a grant for each 64 KB costs, in instructions of both ends (callgrind counts): at most 1 % more than a buffer that sizes itself."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["UNET_BUILD"]
PROGRAM = os.path.join(BUILD, "tests", "sock", "sock_granted")
BYTES, TIMES, MOST = 65536, 500, 1.01


def instructions(*every):
    with tempfile.TemporaryDirectory() as tmp:
        env = dict(os.environ, UNET_DOMAIN=f"granted-{os.getpid()}-{'-'.join(every)}", UNET_LIBEXEC=os.path.join(BUILD, "unetd"),
                   UNET_CHECK_LEVELS="0")
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp}/out", "--toggle-collect=counted",
                              PROGRAM, str(BYTES), str(TIMES), *every], capture_output=True, text=True, env=env, check=False, timeout=400)
    if run.returncode != 0:
        raise RuntimeError(run.stdout + run.stderr)
    return max(map(int, re.findall(r"Collected : (\d+)", run.stderr))) / TIMES      # forked children say 0


class Granted(unittest.TestCase):
    def test_stream(self):
        plain, granted, rarely = instructions(), instructions("1"), instructions("20")
        print(f"{BYTES} bytes {plain:.0f}, with a grant {granted:.0f} instructions: {granted / plain:.4f}; with a grant for 20 of them "
              f"{rarely:.0f}", flush=True)
        self.assertLessEqual(granted, plain * MOST)


if __name__ == "__main__":
    sys.exit(unittest.main())
