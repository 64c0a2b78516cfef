#!/usr/bin/env python3
"""The examples over <unet/sock.h> and <unet/flow.h> do what they say."""

import os
import re
import subprocess
import sys
import time
import unittest

SOURCE, BUILD = os.environ["UNET_SOURCE"], os.environ["UNET_BUILD"]
os.environ["UNET_DOMAIN"] = f"examples-{os.getpid()}"           # a unetd of our own
sys.path.insert(0, os.path.join(SOURCE, "tests"))
import ports  # noqa: E402

PATIENCE = 200


def example(name, *args):
    return subprocess.Popen([os.path.join(BUILD, "examples", name), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


class Examples(unittest.TestCase):
    def sends(self, server, name, *args):
        """The client; again, as long as nobody listens yet."""
        until = time.monotonic() + PATIENCE
        while True:
            client = example(name, *args)
            out, err = client.communicate(timeout=PATIENCE)
            if client.returncode == 0:
                return out
            self.assertIn("refused", err)
            self.assertIsNone(server.poll())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)

    def metered(self, rate, count):
        port = next(p for p in ports.candidates() if ports.claimed(p))
        server = example("meter_sock", "-s", "-p", port, "-r", rate)
        self.sends(server, "meter_sock", "-p", port, "-n", count)
        out, err = server.communicate(timeout=PATIENCE)
        self.assertEqual(server.returncode, 0, err)
        came, took, granted = re.match(r"(\d+) bytes in ([\d.]+) s, granted (\d+):", out).groups()
        self.assertEqual(int(came), count)
        self.assertGreaterEqual(int(granted), count)
        self.assertLessEqual(int(granted), rate * (float(took) + 0.001), out)      # it is printed rounded

    def test_a_metered_sender_sends_no_faster_than_granted(self):
        self.metered(2000000, 600000)
        self.metered(100000, 30001)


if __name__ == "__main__":
    unittest.main()
