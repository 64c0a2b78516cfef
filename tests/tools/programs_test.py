#!/usr/bin/env python3
"""bench/programs: every server that is installed runs over both sides, and U-Net's side is not the kernel's."""

import json
import os
import subprocess
import sys
import unittest

PROGRAMS = os.path.join(os.environ["UNET_SOURCE"], "bench", "programs")
ALWAYS = "redis get, 50 clients"        # scripts/deps.sh check installs it


def run(*args):
    return subprocess.run([sys.executable, PROGRAMS, "--build", os.environ["UNET_BUILD"], *args], capture_output=True, text=True,
                          timeout=1200, check=False)


class Programs(unittest.TestCase):
    def test_each_installed_server_answers_over_both_sides(self):
        done = run("--quick", "--json", "-")
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        result = json.loads(done.stdout)
        for name in result["left_out"]:
            print(f"left out: {name} is not installed")
        rows = {row["name"]: row for row in result["rows"]}
        self.assertIn(ALWAYS, rows)
        self.assertEqual(result["failures"], [])
        for row in rows.values():
            for value in ("kernel", "unet", "ratio", "kernel_cpu_us", "unet_cpu_us"):
                self.assertGreater(row[value], 0, row)

    def test_a_name_that_is_not_there(self):
        done = run("--only", "no such server")
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_the_list_names_what_is_run(self):
        names = run("--list").stdout.splitlines()
        self.assertIn(ALWAYS, names)
        self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
