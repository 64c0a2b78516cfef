#!/usr/bin/env python3
"""unet top beside live stacks: rates that add up, and a terminal whose size changes."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests", "tools"))
from beside import LIMIT, UNET, Beside, look, unet, wait_until  # noqa: E402


class Top(Beside):
    def test_top_shows_a_transfer(self):
        server = self.start_iperf3_server()
        self.start_iperf3_client("-b", "300M")
        wait_until("a transfer", self.sending)
        top = self.popen("top", "--json", "--interval", "0.2")
        ticks = wait_until("two ticks with the flow", lambda: [
            tick for tick in self.events(top) if any((f["tx_bytes"] or 0) > 0 for f in tick["flows"])][1:])
        top.send_signal(signal.SIGINT)
        self.assertEqual(top.wait(LIMIT), 0)
        flow = ticks[0]["flows"][0]                     # the busiest
        self.assertEqual(flow["protocol"], "tcp")
        self.assertGreater(flow["tx_bytes"] + flow["rx_bytes"], 0)
        self.assertGreater(flow["tx_messages"] + flow["rx_messages"], 0)
        stack = next(s for s in ticks[0]["stacks"] if s["pid"] == server.pid)
        self.assertEqual(stack["program"], "iperf3")
        self.assertGreater(stack["rx_bytes"], 0)
        self.assertGreaterEqual(stack["cpu"], 0)
        self.assertEqual([t["time"] for t in ticks], sorted(t["time"] for t in ticks))

    def test_top_rates_are_what_the_counters_went_up_by(self):
        """All ticks together have what the stack has counted."""
        self.start("nc", "-l", "-k", "-p", str(self.port))
        wait_until("a listener", self.listener)
        stack = self.listener()["stack"]
        counter = lambda: look("stat", "--stack", str(stack))["counters"]["NI_RX_MSGS"]
        before = self.quiet(stack, counter)
        top = self.popen("top", "--json", "--interval", "0.1")
        wait_until("a tick", lambda: self.events(top))
        unet("run", "nc", "-N", "127.0.0.1", str(self.port), input=b"x" * 100000)
        after = self.quiet(stack, counter)
        seen = len(self.events(top))
        wait_until("a tick after the last message", lambda: len(self.events(top)) > seen + 1)
        top.send_signal(signal.SIGINT)
        self.assertEqual(top.wait(LIMIT), 0)
        rates = [next(s for s in tick["stacks"] if s["stack"] == stack) for tick in self.events(top)]
        self.assertAlmostEqual(sum(r["rx_messages"] * r["seconds"] for r in rates), after - before, places=3)

    def test_top_ends_and_says_that_nothing_was_there(self):
        lines = unet("top", "--json", "--interval", "0.01", "--count", "3", ok=(1,)).splitlines()
        self.assertEqual(len(lines), 3)
        for line in lines:
            tick = json.loads(line)
            self.assertEqual((tick["stacks"], tick["flows"]), ([], []))
            self.assertIn("no unetd runs", tick["error"])
        self.start_iperf3_server()
        text = unet("top", "--interval", "0.01", "--count", "2")
        self.assertEqual(text.count("unet top  "), 2)
        self.assertIn("iperf3", text)
        self.assertNotIn("\x1b", text)

    def test_top_fills_a_terminal_that_is_resized(self):
        """Nothing is to be drawn anew but by the change of size: the next look is in ten minutes."""
        if b"ncurses" not in subprocess.run(["ldd", UNET], capture_output=True, check=True).stdout:
            self.skipTest("this build has no ncurses")
        self.start_iperf3_server()
        pid, tty = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "vt100"
            os.execv(UNET, [UNET, "top", "--interval", "600"])
        said = bytearray()

        def shown(text):
            while select.select([tty], [], [], 0)[0]:
                said.extend(os.read(tty, 65536))
            return text in said

        def resize(rows, columns):
            said.clear()
            fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        try:
            wait_until("the first picture", lambda: shown(b"stacks"))
            resize(20, 30)
            wait_until("a narrow one", lambda: shown(b"unet top"))
            resize(40, 200)
            wait_until("a wide one", lambda: shown(b"most for"))
            self.assertIn(b"drops/s", said)
            resize(24, 28)
            wait_until("a narrow one again", lambda: shown(b"program"))
            self.assertNotIn(b"most for", said)
            os.write(tty, b"q")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(tty)


if __name__ == "__main__":
    unittest.main(verbosity=2)
