#!/usr/bin/env python3
"""A round trip of active messages costs at most 1.1 times a raw one, in instructions, both sides together (callgrind counts)."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.join(os.environ["UNET_BUILD"], "tests", "am", "am_pingpong")
MOST = 1.1
FEW, MANY = 200, 1200


def instructions(what, size, trips):
    with tempfile.TemporaryDirectory() as tmp:
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp}/out", PROGRAM, what, str(size), str(trips)],
                             capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", run.stderr).group(1))


def per_trip(what, size):
    return (instructions(what, size, MANY) - instructions(what, size, FEW)) / (MANY - FEW)


class Cost(unittest.TestCase):
    def test_round_trip(self):
        for size in (32, 56, 88):       # with 1, 4 and 8 arguments; the raw message is as long
            raw, am = per_trip("raw", size), per_trip("am", size)
            print(f"{size} bytes: raw {raw:.0f}, active message {am:.0f} instructions: {am / raw:.3f}", flush=True)
            self.assertLessEqual(am, raw * MOST)


if __name__ == "__main__":
    sys.exit(unittest.main())
