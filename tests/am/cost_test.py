#!/usr/bin/env python3
"""What active messages cost beside raw endpoints, in instructions, both sides together (callgrind counts): a round trip at most 1.1
times a raw one; stores of 64 KB and more at least 0.98 of the raw stream, those of 2 KB half of it."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.environ["UNET_SOURCE"], "tests"))
from long_run import LONG  # noqa: E402

PROGRAM = os.path.join(os.environ["UNET_BUILD"], "tests", "am", "am_pingpong")
MOST = 1.1
RATES = {2048: 0.5, 65536: 0.98, **({262144: 0.98} if LONG else {})}
FEW, MANY = 200, 1200
WARM = 1.25                             # the program does a quarter before it begins


def instructions(what, size, trips):
    with tempfile.TemporaryDirectory() as tmp:
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp}/out", PROGRAM, what, str(size), str(trips)],
                             capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", run.stderr).group(1))


def each(what, size, few=FEW, many=MANY):
    return (instructions(what, size, many) - instructions(what, size, few)) / (many - few) / WARM


class Cost(unittest.TestCase):
    def test_round_trip(self):
        for size in (32, 56, 88) if LONG else (32, 88):         # with 1, 4 and 8 arguments; the raw message is as long
            raw, am = each("raw", size), each("am", size)
            print(f"{size} bytes: raw {raw:.0f}, active message {am:.0f} instructions: {am / raw:.3f}", flush=True)
            self.assertLessEqual(am, raw * MOST)

    def test_stores(self):
        """Both put the bytes into the receiver's segment: the raw one into buffers of its free queue."""
        for size, least in RATES.items():
            raw, am = each("stream", size, 100, 500), each("store", size, 100, 500)
            print(f"{size} bytes: raw {raw:.0f}, store {am:.0f} instructions: {raw / am:.3f} of the raw stream", flush=True)
            self.assertGreaterEqual(raw, am * least)


if __name__ == "__main__":
    sys.exit(unittest.main())
