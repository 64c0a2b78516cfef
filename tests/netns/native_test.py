#!/usr/bin/env python3
"""The kernel's side against a server over the native API: ten thousand connections, floods, scans and malformed packets. Nothing
is preloaded here, so that this runs in builds with sanitizers too: ours is checked while others attack it."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hostile_test  # noqa: E402
import lan  # noqa: E402
import lan_test  # noqa: E402

SERVER = os.path.join(lan.BUILD, "examples", "echo_sock")
MANY = 10000 if lan.LONG else 1000


class Native(hostile_test.Hostile):
    test_memory_is_bounded = None       # sanitizers keep what was freed; netns_hostile_test looks at it

    def setUp(self):
        lan_test.Lan.setUp(self)
        self.keep = self.ours.run(SERVER, "-s", "-p", str(lan_test.CLOSED), shim=False)
        self.ours.until(lambda: f":{lan_test.CLOSED} " in self.ours.run(lan.UNET, "ss", "--listening", shim=False).end(ok=(0, 1)),
                        "the server")

    def assert_ours(self, p):
        """It could not be another's: it has no socket of the kernel's."""
        self.assertIsNone(p.child.poll(), p.text(1))

    def tearDown(self):
        super().tearDown()
        for host in (self.ours, self.other):
            for p in host.programs:
                self.assertNotIn("Sanitizer", p.text(1))
        self.assertNotIn("Sanitizer", self.ours.logged())

    def test_thousands_of_connections(self):
        self.assertEqual(self.peer(self.other, "many", lan_test.OURS, lan_test.CLOSED, MANY).end(lan.TRANSFER), "all\n")
        self.still_serves()


if __name__ == "__main__":
    lan_test.main()
