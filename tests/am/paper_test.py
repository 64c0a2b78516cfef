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
sys.path.append(os.path.join(SOURCE, "tests"))
from long_run import long_run  # noqa: E402


class Paper(unittest.TestCase):
    def drawn(self, svg, *options):
        """The page, and the words of the picture."""
        with tempfile.TemporaryDirectory() as out:
            shutil.copy(os.path.join(SOURCE, "docs", "paper.json"), out)
            run = subprocess.run([sys.executable, os.path.join(SOURCE, "bench", "paper"), "--quick", "--build", BUILD, "--out", out,
                                  *options], capture_output=True, text=True, check=False, env=dict(os.environ, UNET_BENCH_PATIENCE="20"))
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
            with open(os.path.join(out, "paper.md"), encoding="utf-8") as f:
                page = f.read()
            picture = xml.etree.ElementTree.parse(os.path.join(out, svg)).getroot()
        self.assertTrue(picture.tag.endswith("svg"))
        return page, "".join(picture.itertext())

    @long_run
    def test_windows(self):
        page, text = self.drawn("windows.svg", "--windows", "shm,xdp")
        for part in ("bandwidth against its window", "U-Net, one host", "kernel, one host"):
            self.assertIn(part, page)
        self.assertTrue("U-Net by AF_XDP, a veth pair" in page or "Not here: AF_XDP" in page, page)
        self.assertIn("one host", text)
        for told in (page, text):               # measured before, and kept
            self.assertIn("verbs (soft-RoCE in a virtual machine)", told)
        self.assertNotIn("Not here: verbs", page)

    def test_quick(self):
        page, text = self.drawn("paper.svg")
        for part in ("Round trip against size", "Bandwidth against size", "Split-C programs", "LogP",
                     "raw shm", "active messages emul", "Split-C stores shm", "U-Net UDP", "kernel TCP", "| em3d | shm |",
                     "Over verbs, in an emulated machine", "raw verbs", "| em3d | verbs |"):
            self.assertIn(part, page)
        for title in ("round trip", "bandwidth", "LogP signature", "Split-C programs"):
            self.assertIn(title, text)


if __name__ == "__main__":
    sys.exit(unittest.main())
