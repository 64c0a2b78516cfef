#!/usr/bin/env python3
"""What counts and judges: scripts/tally.py and the rows of bench/compare."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ["UNET_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
from harness import gates, report  # noqa: E402


def junit(*cases):
    return "<testsuite>" + "".join(
        f'<testcase name="{name}" status="{status}">{"<skipped/>" if status == "notrun" else ""}'
        f"<system-out>{out}</system-out></testcase>" for name, status, out in cases) + "</testsuite>"


class Tally(unittest.TestCase):
    def tally(self, xml, skips="", checks="", again=junit(), recorded=None):
        with tempfile.TemporaryDirectory() as d:
            paths = {name: os.path.join(d, name) for name in ("dev.xml", "dev.again.xml", "skips.txt", "checks.tsv", "log")}
            for name, text in (("dev.xml", xml), ("dev.again.xml", again), ("skips.txt", skips), ("log", "why it failed\n"),
                               ("checks.tsv", checks.replace("LOG", paths["log"]))):
                with open(paths[name], "w", encoding="utf-8") as f:
                    f.write(text)
            done = subprocess.run(
                [sys.executable, os.path.join(SOURCE, "scripts", "tally.py"), "--skips", paths["skips.txt"],
                 *(("--record", recorded) if recorded else ()), paths["dev.xml"], paths["checks.tsv"]],
                capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout.strip().splitlines()[-1], done.stdout

    def test_counts_what_cmocka_programs_hold(self):
        code, last, _ = self.tally(junit(("a", "run", "[  PASSED  ] 7 test(s)."), ("script", "run", "fine")))
        self.assertEqual((code, last), (0, "8 passed, 0 failed, 0 skipped"))

    def test_counts_what_unittest_programs_hold(self):
        code, last, _ = self.tally(junit(("a", "run", "ok\nRan 5 tests in 0.1s\n\nOK\n"),
                                         ("b", "fail", "Ran 4 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n")))
        self.assertEqual((code, last), (1, "7 passed, 2 failed, 0 skipped"))

    def test_knows_the_reasons_that_unittest_prints(self):
        out = "test_x (m.T.test_x) ... skipped 'needs root'\nRan 3 tests in 0.1s\n\nOK (skipped=1)\n"
        code, last, _ = self.tally(junit(("a", "run", out)), "a: needs root\n")
        self.assertEqual((code, last), (0, "2 passed, 0 failed, 1 skipped"))

    def test_shows_what_failed(self):
        code, last, text = self.tally(junit(("a", "fail", "[  PASSED  ] 2 test(s).\n[  FAILED  ] 1 test(s), listed:"),
                                            ("crash", "fail", "Segmentation fault")))
        self.assertEqual((code, last), (1, "2 passed, 2 failed, 0 skipped"))
        self.assertIn("Segmentation fault", text)

    def test_a_test_that_passes_alone_is_unsteady(self):
        first = junit(("a", "fail", "[  PASSED  ] 2 test(s).\n[  FAILED  ] 1 test(s), listed:"), ("b", "run", "fine"))
        code, last, text = self.tally(first, again=junit(("a", "run", "[  PASSED  ] 3 test(s).")))
        self.assertEqual((code, last), (0, "4 passed, 0 failed, 0 skipped"))
        self.assertIn("unsteady: dev: a", text)
        code, last, text = self.tally(first, again=junit(("a", "fail", "[  FAILED  ] 1 test(s), listed:")))
        self.assertEqual((code, last), (1, "3 passed, 1 failed, 0 skipped"))
        self.assertNotIn("unsteady", text)

    def test_a_sanitizers_report_is_no_unsteadiness(self):
        code, last, _ = self.tally(junit(("a", "fail", "ERROR: AddressSanitizer: heap-use-after-free")),
                                   again=junit(("a", "run", "fine")))
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"))

    def test_the_end_tells_what_failed_and_why(self):
        """A log's last lines are often all that is kept: skips come before failures, and each shows where it began."""
        lines = [f"line {i}" for i in range(500)]
        lines[100] = "FAIL: test_x (m.T.test_x)"
        _, _, text = self.tally(junit(("a", "fail", "\n".join(lines)), ("net", "notrun", "skipped: needs root")),
                                "net: needs root\n")
        tail = text.splitlines()[-66:]
        for what in ("--- failed: dev: a", "    FAIL: test_x (m.T.test_x)", "    line 499", "failed: dev: a"):
            self.assertIn(what, tail)
        self.assertNotIn("    line 99", tail)
        self.assertNotIn("skipped, as foreseen:", tail)

    def test_a_foreseen_skip_is_shown_with_its_reason(self):
        code, last, text = self.tally(
            junit(("net", "notrun", "skipped: needs root"), ("b", "run", "[  PASSED  ] 1 test(s).")),
            "# why\nnet*: needs root\n")
        self.assertEqual((code, last), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("net (dev): needs root", text)

    def test_any_other_skip_fails(self):
        for out in ("skipped: the moon is full", ""):
            code, last, _ = self.tally(junit(("net", "notrun", out)), "net*: needs root\n")
            self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"))

    def test_every_skip_inside_a_program_needs_its_reason(self):
        out = "skipped: needs root\n[  PASSED  ] 3 test(s).\n[  SKIPPED ] 2 test(s), listed below:"
        code, last, _ = self.tally(junit(("net", "run", out)), "net: needs root\n")
        self.assertEqual((code, last), (1, "3 passed, 1 failed, 1 skipped"))

    def test_checks_count_too(self):
        code, last, text = self.tally(junit(), checks="passed\tlayout\tLOG\nfailed\tpages\tLOG\n")
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("why it failed", text)

    def test_what_each_part_came_to_is_kept(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "check", "here.json")
            self.tally(junit(("a", "fail", "crash")), checks="passed\tlayout\tLOG\n", recorded=path)
            with open(path, encoding="utf-8") as f:
                first = json.load(f)
            with open(path, "w", encoding="utf-8") as f:
                json.dump({**first, "asan": first["dev"]}, f)
            self.tally(junit(("a", "run", "[  PASSED  ] 7 test(s).")), checks="failed\tlayout\tLOG\ntook\tchecks\t600\n", recorded=path)
            with open(path, encoding="utf-8") as f:
                second = json.load(f)
        self.assertEqual((first["dev"]["passed"], first["dev"]["failed"], first["dev"]["failures"]), (0, 1, ["dev: a"]))
        self.assertEqual((second["dev"]["passed"], second["dev"]["failed"], second["dev"]["failures"]), (7, 0, []))
        self.assertEqual((second["checks"]["minutes"], second["checks"]["failures"], second["asan"]), (10, ["layout"], first["dev"]))

    def test_nothing_run_is_a_failure(self):
        self.assertEqual(self.tally(junit())[0], 1)

    def test_a_file_that_cannot_be_read_is_a_failure(self):
        self.assertEqual(self.tally("<testsuite>")[0], 1)


class Judge(unittest.TestCase):
    def run_of(self, measurement, side, **values):
        return {"measurement": measurement, "side": side, "run": 0, "values": values}

    def row(self, runs, title):
        return next(r for r in report.judged_rows(runs) if r["title"].startswith(title))

    def test_a_rate_is_judged_by_how_many_times_it_is_higher(self):
        for ours, verdict in ((19, "short"), (20, "met"), (50, "aim")):
            runs = [self.run_of("tcp", "kernel", gbps=10), self.run_of("tcp", "unet", gbps=ours)]
            self.assertEqual(self.row(runs, "iperf3 TCP, 1 stream")["verdict"], verdict)

    def test_a_time_is_judged_by_how_many_times_it_is_shorter(self):
        runs = [self.run_of("ping-pong", "kernel", rtt_us=45), self.run_of("ping-pong", "unet", rtt_us=3)]
        row = self.row(runs, "sockperf ping-pong, kernel blocking")
        self.assertEqual((row["ratio"], row["verdict"]), (15, "met"))

    def test_a_bound_without_reference(self):
        for ours, verdict in ((0, "met"), (0.9, "met"), (1.1, "short")):
            self.assertEqual(self.row([self.run_of("idle", "unet", cpu_ms=ours)], "CPU of an idle")["verdict"], verdict)

    def test_the_median_counts(self):
        runs = [self.run_of("tcp", "kernel", gbps=10)] + [self.run_of("tcp", "unet", gbps=g) for g in (1, 30, 99)]
        self.assertEqual(self.row(runs, "iperf3 TCP, 1 stream")["ours"], 30)

    def test_every_row_names_a_measurement(self):
        names = {(m.name, side) for m in gates.plan() for side in m.sides}
        for row in gates.rows():
            self.assertIn(row.ours[:2], names)
            self.assertTrue(row.ref is None or row.ref[:2] in names)

    def test_a_run_that_the_kernel_carried_is_found(self):
        runs = [self.run_of("tcp", "unet", kernel_segments=90000), self.run_of("tcp-64", "unet", kernel_segments=12),
                self.run_of("udp-64", "kernel", kernel_segments=90000)]
        self.assertEqual(report.not_accelerated(runs), [("tcp", 90000)])

    def test_the_table_can_be_printed(self):
        runs = [self.run_of("tcp", "kernel", gbps=10), self.run_of("tcp", "unet", gbps=33.333),
                self.run_of("idle", "unet", cpu_ms=0.0)]
        text = report.table(report.judged_rows(runs))
        self.assertIn("3.33x", text)
        self.assertIn("<= 1", text)


class House(unittest.TestCase):
    SCRIPT = os.path.join(SOURCE, "scripts", "measure_house.py")

    def measure(self, tree, *options):
        done = subprocess.run([sys.executable, self.SCRIPT, "--json", *options, tree], capture_output=True, text=True, timeout=300,
                              check=False)
        return done.returncode, json.loads(done.stdout), done.stderr

    def test_no_function_and_no_sentence_is_too_long(self):
        code, found, said = self.measure(SOURCE, "--check")
        self.assertEqual((code, said), (0, ""))
        self.assertGreater(found["functions"]["count"], 1000)
        self.assertIn("CONTRIBUTING.md", found["pages"])

    def test_a_sentence_that_is_too_long_is_named(self):
        with tempfile.TemporaryDirectory() as d:
            os.makedirs(os.path.join(d, "docs"))
            with open(os.path.join(d, "a.c"), "w", encoding="utf-8") as f:
                f.write("int a(void)\n{\n}\n\nint b(void)\n{\n}\n")
            for words, code in ((25, 0), (26, 1)):
                with open(os.path.join(d, "docs", "a.md"), "w", encoding="utf-8") as f:
                    f.write("Short it is. " + " ".join(f"Word{i}" for i in range(words)) + ".\n")
                found = self.measure(d, "--check")
                self.assertEqual((found[0], "docs/a.md, 26 words: Word0 Word1" in found[2]), (code, code == 1))

    def test_counts_what_stands_there(self):
        with tempfile.TemporaryDirectory() as d:
            os.makedirs(os.path.join(d, "room"))
            with open(os.path.join(d, "room", "a.c"), "w", encoding="utf-8") as f:
                f.write("int a(void)\n{\n" + "        assert(1);\n" * 80 + "}\n\nstatic void b(int x,\n              int y)\n{\n}\n")
            with open(os.path.join(d, "room", "a.h"), "w", encoding="utf-8") as f:
                f.write("int a(void);\nvoid c(int x,\n       int y);\nstatic inline int d(void);\n")
            with open(os.path.join(d, "README.md"), "w", encoding="utf-8") as f:
                f.write("# Head\n\nThree words here. Now there are five.\n\n    code code code code code code\n")
            code, found, said = self.measure(d, "--check")
        self.assertEqual((code, said), (1, "too long: room/a.c:a, 83 lines\n"))
        self.assertEqual([(f["lines"], f["where"]) for f in found["functions"]["longest"]], [(83, "room/a.c:a"), (4, "room/a.c:b")])
        self.assertEqual((found["folders"]["room"]["assertions"], found["hub_headers"][0]["prototypes"]), (80, 2))
        self.assertEqual(found["pages"]["README.md"], {"sentences": 2, "mean": 3.5, "longest": 4,
                                                       "longest_sentence": "Now there are five."})


class Results(unittest.TestCase):
    """scripts/results: the page that it makes of runs of bench/compare, of bench/programs, of bench/counted and of ./check."""

    RUN = {"machine": {"cpu": "A CPU", "cpus": 2, "virtual": True, "kernel": "6.1"}, "runs_asked": 5, "seconds": 1, "seed": 7,
           "failures": [], "rows": [
               {"title": "one stream", "unit": "Gb/s", "reference": 50, "ours": 125, "ratio": 2.5, "at_least": 2,
                "absolute": False, "verdict": "ok"},
               {"title": "idle", "unit": "ms", "reference": None, "ours": 0.5, "ratio": 0.5, "at_least": 1,
                "absolute": True, "verdict": "ok"}]}

    PROGRAMS = {**RUN, "rows": [
        {"name": "a server", "client": "unet", "beside": "busy", "kernel": {"rate": 1000, "p50_us": 12, "p99_us": 345, "cpu_us": 9.5},
         "unet": {"rate": 900, "cpu_us": 8}, "ratio": 0.9, "least": 0.8, "most": 1.25, "short": ["rate"]}]}

    def results(self, *args):
        return subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "results"), *args], capture_output=True, text=True,
                              timeout=300, check=False)

    def test_the_page_is_what_the_runs_make_of_it(self):
        with tempfile.TemporaryDirectory() as d:
            os.mkdir(os.path.join(d, "docs"))
            os.mkdir(os.path.join(d, "results"))
            for date, ours in (("2026-11-28", 100), ("2026-11-29", 125)):
                run = json.loads(json.dumps(self.RUN))
                run["rows"][0].update(ours=ours, ratio=ours / 50)
                with open(os.path.join(d, "results", f"{date}-here.json"), "w", encoding="utf-8") as f:
                    json.dump(run, f)
            self.assertEqual(self.results(d).returncode, 0)
            self.assertEqual(self.results("--check", d).returncode, 0)
            with open(os.path.join(d, "docs", "results.md"), encoding="utf-8") as f:
                text = f.read()
            self.assertIn("## The last run: 2026-11-29, here", text)
            self.assertIn("| one stream | 50 | 125 | Gb/s | 2.5x | 2 | ok |", text)
            self.assertIn("| one stream | 2x | 2.5x |", text)
            self.assertIn("| idle | 0.5 ms | 0.5 ms |", text)
            os.mkdir(os.path.join(d, "results", "programs"))
            with open(os.path.join(d, "results", "programs", "2026-11-29-there.json"), "w", encoding="utf-8") as f:
                json.dump(self.PROGRAMS, f)
            self.assertEqual(self.results("--check", d).returncode, 1)
            self.assertEqual(self.results(d).returncode, 0)
            with open(os.path.join(d, "docs", "results.md"), encoding="utf-8") as f:
                text = f.read()
            self.assertIn("### Client and server over U-Net, beside a computing program on each processor", text)
            self.assertIn("| a server | 1,000 | 900 | 0.90 | 0.80 to 1.25 | 12 |  | 345 |  | 9.5 | 8 | rate |", text)
            os.mkdir(os.path.join(d, "results", "counted"))
            with open(os.path.join(d, "results", "counted", "2026-11-29.json"), "w", encoding="utf-8") as f:
                json.dump({"builds": ["old", "new"], "rows": {"tcp": {"title": "a message", "values": {
                    "old": [{"Ir": 1000}, {"Ir": 1010}, {"Ir": 5000}], "new": [{"Ir": 1111}]}}}}, f)
            self.assertEqual(self.results("--check", d).returncode, 1)
            self.assertEqual(self.results(d).returncode, 0)
            with open(os.path.join(d, "docs", "results.md"), encoding="utf-8") as f:
                self.assertIn("| a message | 1,010 | 1,111 | 1.100 |", f.read())
            os.mkdir(os.path.join(d, "results", "check"))
            part = {"passed": 1200, "failed": 0, "skipped": 3, "minutes": 31.6, "commit": "abc", "failures": [], "unsteady": []}
            for date, parts in (("2026-11-28", ("dev", "tsan")), ("2026-11-29", ("dev",))):
                with open(os.path.join(d, "results", "check", f"{date}-here.json"), "w", encoding="utf-8") as f:
                    json.dump({name: {**part, "date": date} for name in parts}, f)
            self.assertEqual(self.results("--check", d).returncode, 1)
            self.assertEqual(self.results(d).returncode, 0)
            with open(os.path.join(d, "docs", "results.md"), encoding="utf-8") as f:
                text = f.read()
            self.assertIn("| dev | gcc: every test | 1,200 | 0 | 3 | 32 | abc | 2026-11-29 |", text)
            self.assertIn("| tsan | TSan: where threads meet | 1,200 | 0 | 3 | 32 | abc | 2026-11-28 |", text)
            self.assertIn("Not run: house, long,", text)
            with open(os.path.join(d, "results", "2026-11-30-here.json"), "w", encoding="utf-8") as f:
                f.write("[]")
            self.assertEqual(self.results("--check", d).returncode, 1)

    def test_the_page_of_this_tree_is_up_to_date(self):
        done = self.results("--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
