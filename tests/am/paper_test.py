#!/usr/bin/env python3
"""bench/paper --quick measures everything that needs no other host, and draws it; what a machine has measured stays."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BUILD, SOURCE = os.environ["UNET_BUILD"], os.environ["UNET_SOURCE"]


class Paper(unittest.TestCase):
    def test_quick(self):
        with tempfile.TemporaryDirectory() as out:
            shutil.copy(os.path.join(SOURCE, "docs", "paper.json"), out)
            run = subprocess.run([sys.executable, os.path.join(SOURCE, "bench", "paper"), "--quick", "--build", BUILD, "--out", out],
                                 capture_output=True, text=True, check=False, env=dict(os.environ, UNET_BENCH_PATIENCE="20"))
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            with open(os.path.join(out, "paper.md"), encoding="utf-8") as f:
                page = f.read()
            picture = xml.etree.ElementTree.parse(os.path.join(out, "paper.svg")).getroot()
        for part in ("Round trip against size", "Bandwidth against size", "bandwidth against its window", "Split-C programs", "LogP",
                     "raw shm", "active messages emul", "Split-C stores shm", "U-Net UDP", "kernel TCP", "| em3d | shm |",
                     "Over verbs, in an emulated machine", "raw verbs", "| em3d | verbs |"):
            self.assertIn(part, page)
        self.assertTrue(picture.tag.endswith("svg"))
        text = "".join(picture.itertext())
        for title in ("round trip", "bandwidth", "LogP signature", "Split-C programs"):
            self.assertIn(title, text)


if __name__ == "__main__":
    sys.exit(unittest.main())
