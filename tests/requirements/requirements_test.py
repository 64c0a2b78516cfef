#!/usr/bin/env python3
"""The requirement tables: whole, and each claim names a test that exists. Also: that the checker can say no."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ["UNET_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
import requirements as req  # noqa: E402

THIS = "tests/requirements/requirements_test.py:test_a_claim_needs_a_test_that_exists"


class Tables(unittest.TestCase):
    def test_every_line_is_there_and_scored_and_its_tests_exist(self):
        tables = {t: req.read(os.path.join(SOURCE, "docs", "requirements", f"{t}.csv")) for t in req.TABLES}
        bad = [text for table, rows in tables.items() for text in req.table_problems(SOURCE, table, rows)]
        print(req.score(tables))
        self.assertEqual(bad, [])


class Checker(unittest.TestCase):
    def problems(self, *changed):
        row = ["L1", "MUST", "RFC", "text", "done", THIS, ""]
        for at, value in changed:
            row[req.COLUMNS.index(at)] = value
        return req.row_problems(SOURCE, row)

    def test_a_claim_needs_a_test_that_exists(self):
        self.assertEqual(self.problems(), [])
        for tests in ("", "tests/none.c:x", THIS + "x", "scripts/tally.py:counted", "tests/requirements", "../x:y",
                      "tests/requirements/requirements_test.py", THIS + " tests/arp/none_test.c:x"):
            self.assertNotEqual(self.problems(("tests", tests)), [], tests)

    def test_a_test_that_is_a_function_of_c_or_a_script_counts(self):
        self.assertTrue(req.test_exists(SOURCE, "tests/ip/icmp_test.c:an_echo_reply_is_for_whoever_asked"))
        self.assertTrue(req.test_exists(SOURCE, "tests/tools/cli_test.sh"))
        self.assertFalse(req.test_exists(SOURCE, "tests/ip/icmp_test.c:echo_request"))

    def test_what_is_not_done_says_why(self):
        for status in ("partial", "no", "n/a"):
            self.assertNotEqual(self.problems(("status", status)), [])
            self.assertEqual(self.problems(("status", status), ("remark", "why")), [])

    def test_a_status_is_one_of_the_list(self):
        self.assertNotEqual(self.problems(("status", "yes")), [])
        self.assertNotEqual(self.problems(("status", "unscored")), [])

    def test_levels_and_texts_are_needed(self):
        self.assertNotEqual(self.problems(("level", "COULD")), [])
        self.assertNotEqual(self.problems(("requirement", " ")), [])

    def test_a_line_missing_doubled_or_strange_is_found(self):
        rows = [req.COLUMNS] + [[f"L{n}", "MUST", "RFC", "text", "done", THIS, ""] for n in range(1, 14)]
        self.assertEqual(req.table_problems(SOURCE, "link", rows), [])
        self.assertNotEqual(req.table_problems(SOURCE, "link", rows[1:]), [])
        self.assertNotEqual(req.table_problems(SOURCE, "link", rows[:-1]), [])
        self.assertNotEqual(req.table_problems(SOURCE, "link", rows + rows[1:2]), [])
        self.assertNotEqual(req.table_problems(SOURCE, "link", rows + [["L14"] + rows[1][1:]]), [])
        self.assertNotEqual(req.table_problems(SOURCE, "link", rows[:-1] + [rows[-1][:-1]]), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
