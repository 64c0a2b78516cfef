#!/usr/bin/env python3
"""ThreadSanitizer and valgrind find nothing in programs that use the library as they should."""

import os
import subprocess
import sys
import unittest

SOURCE, BUILD = os.environ["UNET_SOURCE"], os.environ["UNET_BUILD"]
os.environ["UNET_DOMAIN"] = f"tools-{os.getpid()}"           # a unetd of our own
sys.path.insert(0, os.path.join(SOURCE, "tests"))
import ports  # noqa: E402

PATIENCE = 300


class Tools(unittest.TestCase):
    def test_messages_order_what_threads_do(self):
        # It starts unetd, by a child in the same memory, of which TSan knows nothing.
        quiet = dict(os.environ, TSAN_OPTIONS="report_mutex_bugs=0")
        done = subprocess.run([os.path.join(BUILD, "tests", "sock", "sock_tsan_program")], capture_output=True, text=True,
                              timeout=PATIENCE, check=False, env=quiet)
        self.assertEqual((done.returncode, done.stdout), (0, "43\n"), done.stderr)
        self.assertNotIn("ThreadSanitizer", done.stderr)

    def test_valgrind_is_content(self):
        port = next(p for p in ports.candidates() if ports.claimed(p))
        server = ["valgrind", "-q", "--error-exitcode=9", os.path.join(BUILD, "examples", "echo_sock"), "-s", "-p", str(port)]
        with subprocess.Popen(server, stderr=subprocess.PIPE, text=True) as waits:
            client = ["valgrind", "-q", "--error-exitcode=9", os.path.join(BUILD, "examples", "echo_sock"), "-p", str(port), "hello"]
            for _ in range(PATIENCE):
                done = subprocess.run(client, capture_output=True, text=True, timeout=PATIENCE, check=False)
                if "refused" not in done.stderr:
                    break
            waits.kill()
            said = waits.stderr.read()
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "hello"), done.stderr)
        self.assertNotIn("Invalid", said)
        self.assertNotIn("uninitialised", said)


if __name__ == "__main__":
    unittest.main()
