#!/usr/bin/env python3
"""bench/programs: every row whose server is installed runs over both sides (some of them without UNET_LONG=1), and U-Net's side is not
the kernel's; what it judges."""

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BENCH = os.path.join(os.environ["UNET_SOURCE"], "bench")
PROGRAMS = os.path.join(BENCH, "programs")
sys.path[:0] = BENCH, os.path.join(os.environ["UNET_SOURCE"], "tests")
from harness import process, server, server_report as report  # noqa: E402
import servers  # noqa: E402
from long_run import LONG  # noqa: E402

ALWAYS = "redis get, 50 clients"        # scripts/deps.sh check installs it
SOME = ("*",) if LONG else ("redis get, 50 *", "nginx*", "memcached get, 16 *", "1 byte for 1*")      # of servers that start soon


def run(*args):
    return subprocess.run([sys.executable, PROGRAMS, "--build", os.environ["UNET_BUILD"], *args], capture_output=True, text=True,
                          timeout=1200, check=False)


class Programs(unittest.TestCase):
    def test_each_installed_server_answers_over_both_sides(self):
        done = run("--quick", "--json", "-", *(f"--only={name}" for name in SOME))
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        result = json.loads(done.stdout)
        for name in result["left_out"]:
            print(f"left out: {name} is not installed")
        rows = {row["name"]: row for row in result["rows"]}
        there = [load.name for s in servers.ALL if s.name not in result["left_out"] for load in s.loads
                 if load.quick and any(fnmatch.fnmatch(load.name, name) for name in SOME)]
        self.assertIn(ALWAYS, there)
        self.assertEqual(list(rows), there)
        self.assertEqual(result["failures"], [])
        for row in rows.values():
            for side in ("kernel", "unet"):
                for value in ("rate", "cpu_us"):
                    self.assertGreater(row[side][value], 0, row)

    def test_an_ordinary_client_beside_programs_that_compute(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "result.json")
            done = run("--quick", "--load", "busy", "--client", "kernel", "--only", ALWAYS, "--json", path)
            self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
            with open(path, encoding="utf-8") as f:
                result = json.load(f)
        self.assertEqual([(r["name"], r["client"], r["beside"]) for r in result["rows"]], [(ALWAYS, "kernel", "busy")])
        self.assertGreater(result["rows"][0]["unet"]["p99_us"], 0)
        self.assertIn("server over U-Net, ordinary client, beside a computing program on each processor", done.stdout)

    def test_a_name_that_is_not_there(self):
        done = run("--only", "no such server")
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_the_list_names_what_is_run(self):
        names = run("--list").stdout.splitlines()
        self.assertIn(ALWAYS, names)
        self.assertEqual(len(names), len(set(names)))

    def test_words_that_an_option_has_not(self):
        for option in ("--load", "--client"):
            done = run(option, "quiet,unet", "--list")
            self.assertEqual(done.returncode, 2, done.stderr)


def made(side, rate, number=0, beside="quiet", **values):
    return {"measurement": "a row", "side": side, "beside": beside, "run": number, "values": {"rate": rate, "cpu_us": 10, **values}}


class Judged(unittest.TestCase):
    def test_the_ratio_is_of_pairs(self):
        runs = [made("kernel", 100), made("unet", 200), made("kernel", 1000, 1), made("unet", 1500, 1), made("kernel", 1000, 2),
                made("unet", 4000, 2), made("unet", 1, 3)]
        row, = report.rows(runs)
        self.assertEqual((row["ratio"], row["least"], row["most"], row["kernel"]["rate"]), (2, 1.5, 4, 1000))

    def test_what_is_short(self):
        for side, beside, ours, short in (("unet", "quiet", 99, ["rate"]), ("unet", "quiet", 100, []), ("unet", "busy", 96, []),
                                          ("unet", "busy", 94, ["rate"]), ("ordinary", "quiet", 96, []),
                                          ("ordinary", "quiet", 94, ["rate"])):
            row, = report.rows([made("kernel", 100, beside=beside), made(side, ours, beside=beside)])
            self.assertEqual(row["short"], short, (side, beside, ours))
        row, = report.rows([made("kernel", 100), made("unet", 300, cpu_us=11)])
        self.assertEqual(row["short"], ["cpu"])

    def test_a_time_that_a_client_does_not_tell_is_left_empty(self):
        row, = report.rows([made("kernel", 100, p50_us=7), made("unet", 300)])
        self.assertEqual(report.cells(row)[5:9], ("7", "", "", ""))
        self.assertIn("client and server over U-Net, quiet", report.table([row]))

    def test_percentiles(self):
        self.assertEqual(server.percentiles([(us, 1) for us in range(1, 101)]), {"p50_us": 50, "p99_us": 99})
        self.assertEqual(server.percentiles([(3, 98), (4, 1), (9, 1)]), {"p50_us": 3, "p99_us": 4})

    def test_who_ended_takes_no_time_away(self):
        before = {1: (True, 500), 2: (False, 70), 3: (True, 9000), 4: (False, 30)}
        after = {1: (True, 600), 2: (False, 75), 5: (True, 1)}         # 1 has waited for 4, and nobody below us for 3
        self.assertEqual(process.cpu_between(before, after), 100 + 5 + 1 - 30)

    def test_the_kernel_carried_it(self):
        runs = [made("unet", 1, requests=9000, kernel_segments=900), made("ordinary", 1, requests=9000, kernel_segments=9000)]
        self.assertEqual(server.not_accelerated(runs), [])
        runs[0]["values"]["kernel_segments"] = 901
        self.assertEqual(server.not_accelerated(runs), ["a row"])


if __name__ == "__main__":
    unittest.main()
