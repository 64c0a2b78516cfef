#!/usr/bin/env python3
"""The machines themselves: what was run inside comes back, and nothing runs for ever."""

import os
import subprocess
import sys
import tempfile
import unittest

VM = os.path.join(os.path.dirname(os.path.realpath(__file__)), "vm")


def vm(*args):
    return subprocess.run((VM, *args), capture_output=True, text=True, timeout=580, check=False)


# Every machine takes its time to start: one is asked for all that it can show.
ORDER = """echo "$1"; echo kept >$VM_OUT/file; touch /new
nc -l -p 1 & until echo sent | nc -q 1 -s $VM_ADDR $VM_PEER 1; do sleep 0.2; done; wait
cat /sys/class/net/veth0/statistics/tx_packets; exit 7"""


class Machine(unittest.TestCase):
    def test_output_status_and_files_come_back(self):
        with tempfile.TemporaryDirectory() as out:
            done = vm("--out", out, "sh", "-c", ORDER, "sh", "two words")
            lines = done.stdout.splitlines()
            self.assertEqual((lines[:2], done.returncode), (["two words", "sent"], 7))
            self.assertGreater(int(lines[2]), 5, "packets went inside, not over the pair")
            with open(os.path.join(out, "file"), encoding="ascii") as f:
                self.assertEqual(f.read(), "kept\n")
        self.assertFalse(os.path.exists("/new"))

    def test_the_time_limit_holds(self):
        done = vm("--limit", "5", "sleep", "600")
        self.assertEqual(done.returncode, 124)
        self.assertIn("time limit", done.stderr)

    def test_a_dead_machine_is_told_with_its_console(self):
        done = vm("sh", "-c", "echo c >/proc/sysrq-trigger")
        self.assertEqual(done.returncode, 125)
        self.assertRegex(done.stderr, r"a console: .*(Kernel panic|panic\+0x|sysrq_handle_crash)")


if __name__ == "__main__":
    probe = vm("--prepare")
    if probe.returncode == 77:
        print(probe.stdout, end="")
        sys.exit(77)
    unittest.main(verbosity=2)
