#!/usr/bin/env python3
"""The machines themselves: what was run inside comes back, and nothing runs for ever."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

VM = os.path.join(os.path.dirname(os.path.realpath(__file__)), "vm")


def vm(*args):
    return subprocess.run((VM, *args), capture_output=True, text=True, timeout=580, check=False)


# Every machine takes its time to start: one is asked for all that it can show.
ORDER = """echo "$1"; echo kept >$VM_OUT/file; touch /new
nc -l -p 1 & n=0; until echo sent | nc -q 1 -s $VM_ADDR $VM_PEER 1; do sleep 0.2; [ $((n += 1)) -lt 200 ] || exit 9; done; wait
cat /sys/class/net/veth0/statistics/tx_packets; exit 7"""


class Machine(unittest.TestCase):
    def test_output_status_and_files_come_back(self):
        with tempfile.TemporaryDirectory() as out:
            done = vm("--out", out, "sh", "-c", ORDER, "sh", "two words")
            lines = done.stdout.splitlines()
            self.assertEqual((lines[:2], done.returncode), (["two words", "sent"], 7), done.stderr)
            self.assertGreater(int(lines[2]), 5, "packets went inside, not over the pair")
            with open(os.path.join(out, "file"), encoding="ascii") as f:
                self.assertEqual(f.read(), "kept\n")
        self.assertFalse(os.path.exists("/new"))

    def test_the_time_limit_holds(self):
        done = vm("--limit", "5", "sleep", "600")
        self.assertEqual(done.returncode, 124)
        self.assertIn("time limit", done.stderr)

    def test_machines_that_hang_before_the_command_are_started_anew(self):
        done = vm("--start-limit", "3", "--append", "rdinit=/bin/cat", "true")
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertEqual(re.findall(r"not begun after 3 s \(start (\d) of 3\)", done.stderr), ["1", "2", "3"])

    def test_the_second_start_counts(self):
        loader = importlib.machinery.SourceFileLoader("vm", VM)
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vm", loader))
        loader.exec_module(module)
        made = []

        class Machine:
            """The first never begins; the second has ended well."""

            def __init__(self, name, *_):
                self.hangs, self.name = not made, name
                made.append(self)

            def started(self):
                return not self.hangs

            def running(self):
                return self.hangs

            def result(self):
                return None if self.hangs else 0

            def console(self):
                self.told = True

        module.Machine, module.stop, module.kernel = Machine, lambda _: None, unittest.mock.Mock()
        module.write_order = lambda *_: None
        args = argparse.Namespace(modules="", counted=False, hosts=1, limit=5, start_limit=0.2, verbose=False)
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(module.run(args, "", ""), 0)
        self.assertEqual(len(made), 2)
        self.assertTrue(made[0].told)
        self.assertIn("start 1 of 3", err.getvalue())

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
