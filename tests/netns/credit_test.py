#!/usr/bin/env python3
"""A kernel that sends obeys windows that the receiving application grants: byte for byte, held and opened again."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402

OURS, PEER, PORT = "10.79.0.1", "10.79.0.2", 5000
CREDIT = os.path.join(lan.BUILD, "tests", "netns", "netns_credit")
SENDER = f"""
import socket
s = socket.create_connection(("{OURS}", {PORT}))
while True:
    s.sendall(bytes(65536))
"""


class Credit(lan.Scene):
    def test_a_kernel_sends_what_is_granted_and_no_byte_more(self):
        ours, peer = self.host("a", OURS), self.host("b", PEER)
        lan.cable(ours, peer)
        ours.become_ours()
        peer.become_kernels()
        grants = [1460, 1, 100, 14600, 65535, 2, 20000, 65535]      # less than a segment waits for the kernel's probe
        receiver = ours.run(CREDIT, OURS, str(PORT), *map(str, grants), shim=False)
        ours.until(lambda: f":{PORT} " in ours.run(lan.UNET, "ss", "--listening", shim=False).end(ok=(0, 1)), "the receiver")
        sender = peer.run(sys.executable, "-c", SENDER, shim=False)
        self.assertEqual(receiver.end().splitlines(), [f"{n} {n}" for n in [0, *grants]])
        sender.stop()


if __name__ == "__main__":
    if (why := lan.why_not()):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
