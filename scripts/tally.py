#!/usr/bin/env python3
"""Counts what ctest and the checks of ./check found, shows what failed, and judges what was skipped.

    tally.py --skips tests/expected_skips.txt [--record FILE] RESULT...

A file *.again.xml beside a file *.xml holds the tests that failed there and were run again with the machine to themselves:
the second verdict counts, and a test that failed first is named as unsteady, with its first output. What a sanitizer
reported stays a failure.

A RESULT is a JUnit file of ctest (*.xml), named after its build, or a list of checks (*.tsv: passed or failed, name, log
file; or skipped, name, reason; or took, name, seconds). --record writes what each build came to into FILE, as JSON, beside
what it has of others. Programs of CMocka and of Python's unittest count as many tests as they say they ran. A test
is skipped by exit status 77 or by skip() of either, and must have printed a line "skipped: REASON" for each; a skip whose name
and reason are not on the list is a failure.

The last line is "N passed, N failed, N skipped". Exit status: 0 nothing failed; 1 something did; 2 usage.
"""

import argparse
import datetime
import fnmatch
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

CMOCKA = re.compile(r"\[  (PASSED|FAILED|SKIPPED)\s*\] (\d+) test\(s\)")
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(.*)$", re.MULTILINE)
REASON = re.compile(r"^(?:\[.*?\]\s*)?skipped: (.+)$|^.* \.\.\. skipped '(.+)'$", re.MULTILINE)
SIGN = re.compile(r"WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:|^FAIL: |^ERROR: |--- failed|CHECK\(|"
                  r"\[  FAILED  \]|\[   LINE   \]|AssertionError|Assertion ")
SANITIZER = re.compile(r"WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:")
CONTROL = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd]")


def counted(output):
    """How many tests a program says it ran, by what became of them."""
    counts = {"PASSED": 0, "FAILED": 0, "SKIPPED": 0}
    found = CMOCKA.findall(output)
    for word, number in found:
        counts[word] += int(number)
    for ran, rest in UNITTEST.findall(output) if not found else []:
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", rest))
        skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", rest))
        counts = {"PASSED": int(ran) - bad - skipped, "FAILED": bad, "SKIPPED": skipped}
    return counts


def the_end(output, lines):
    """The last lines, and before them the first that say what went wrong, when those are not among them."""
    every = [line[:300] for line in output.strip().splitlines()]
    first = next((i for i, line in enumerate(every) if SIGN.search(line)), len(every))
    if first >= len(every) - lines:
        return every[-lines:]
    return every[first:first + lines // 3] + ["..."] + every[first + lines // 3:][-(lines - lines // 3):]


class Tally:
    def __init__(self, expected):
        self.expected = expected
        self.passed = self.failed = self.skipped = 0
        self.failures = []              # (name, output)
        self.unsteady = []              # the same of those that passed at the second time
        self.skips = {}                 # (test, reason) -> builds
        self.seconds = {}               # of a build

    def skip(self, build, test, reasons, count):
        """`count` skips with these reasons; each without one, or not on the list, is a failure."""
        for reason in (reasons + [None] * count)[:count]:
            match = next((e for e in self.expected if reason and fnmatch.fnmatchcase(test, e[0])
                          and fnmatch.fnmatchcase(reason, e[1])), None)
            if match:
                self.skipped += 1
                self.skips.setdefault((test, reason), []).append(build)
            else:
                self.failed += 1
                self.failures.append((f"{build}: {test}",
                                      f"skipped, which tests/expected_skips.txt does not foresee: {reason}"))

    def junit(self, path):
        build = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8", errors="replace") as f:
            root = ET.fromstring(CONTROL.sub("?", f.read()))
        again = self.second_verdicts(path)
        for case in root.iter("testcase"):
            output = case.findtext("system-out") or ""
            if case.get("status") == "fail" and case.get("name") in again and not SANITIZER.search(output):
                self.unsteady.append((f"{build}: {case.get('name')}", output))
                case = again[case.get("name")]
                output = case.findtext("system-out") or ""
            if case.get("status") == "fail" and not any(counted(output).values()):
                output += f"\nended without a summary after {float(case.get('time') or 0):.0f} s: crash or time limit"
            self.case(build, case.get("name"), case.get("status"), output, case.find("skipped") is not None)

    @staticmethod
    def second_verdicts(path):
        """The tests that passed when they were run again, by name."""
        path = os.path.splitext(path)[0] + ".again.xml"
        if not os.path.exists(path):
            return {}
        with open(path, encoding="utf-8", errors="replace") as f:
            root = ET.fromstring(CONTROL.sub("?", f.read()))
        return {case.get("name"): case for case in root.iter("testcase") if case.get("status") == "run"}

    def case(self, build, name, status, output, was_skipped):
        counts = counted(output)
        reasons = [a or b for a, b in REASON.findall(output)]
        if status == "disabled":
            return
        if was_skipped or status == "notrun":
            self.skip(build, name, reasons, 1)
        elif status == "run":
            self.passed += counts["PASSED"] or (0 if counts["SKIPPED"] else 1)
            self.skip(build, name, reasons, counts["SKIPPED"])
        else:
            self.passed += counts["PASSED"]
            self.failed += counts["FAILED"] or 1
            self.failures.append((f"{build}: {name}", output))
            self.skip(build, name, reasons, counts["SKIPPED"])

    def checks(self, path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                verdict, name, log = line.rstrip("\n").split("\t")
                if verdict == "passed":
                    self.passed += 1
                    continue
                if verdict == "skipped":
                    self.skipped += 1
                    self.skips.setdefault((name, log), []).append("./check")
                    continue
                if verdict == "took":
                    self.seconds[name] = int(log)
                    continue
                self.failed += 1
                with open(log, encoding="utf-8", errors="replace") as text:
                    self.failures.append((name, text.read()))

    def so_far(self):
        return {"passed": self.passed, "failed": self.failed, "skipped": self.skipped,
                "failures": [name for name, _ in self.failures], "unsteady": [name for name, _ in self.unsteady]}

    def read(self, path):
        """What this file adds: to each count a number, to each list its end."""
        before = self.so_far()
        try:
            (self.junit if path.endswith(".xml") else self.checks)(path)
        except (OSError, ET.ParseError, ValueError) as e:
            self.failed += 1
            self.failures.append((path, f"cannot be read: {e}"))
        return {key: now[len(before[key]):] if isinstance(now, list) else now - before[key] for key, now in self.so_far().items()}

    def show(self, lines):
        if self.skips:
            print("\nskipped, as foreseen:")
        for (test, reason), builds in sorted(self.skips.items()):
            print(f"    {test} ({', '.join(builds)}): {reason}")
        for name, output in self.unsteady:
            print(f"\n--- unsteady, failed beside others and passed alone: {name}")
            print("\n".join("    " + line for line in the_end(output, lines)))
        for name, output in self.failures:      # last, since of a log often only the end is kept
            print(f"\n--- failed: {name}")
            print("\n".join("    " + line for line in the_end(output, lines)))
        if self.unsteady:
            print("\nunsteady: " + "; ".join(name for name, _ in self.unsteady))
        if self.failures:
            print("\nfailed: " + "; ".join(name for name, _ in self.failures))
        print(f"\n{self.passed} passed, {self.failed} failed, {self.skipped} skipped")


def read_expected(path):
    """Pairs (test pattern, reason pattern) of lines `pattern: reason`; # begins a comment."""
    expected = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            test, colon, reason = line.partition(":")
            if not colon or not reason.strip():
                sys.exit(f"{path}:{number}: not \"test: reason\"")
            expected.append((test.strip(), reason.strip()))
    return expected


def record(path, added, seconds):
    """Replaces in the file what it has of these builds."""
    try:
        with open(path, encoding="utf-8") as f:
            parts = json.load(f)
    except FileNotFoundError:
        parts = {}
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    for build, sums in added.items():
        parts[build] = {"date": datetime.date.today().isoformat(), "commit": commit,
                        "minutes": round(seconds.get(build, 0) / 60, 1), **sums}
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(parts, f, indent=1)
        f.write("\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--skips", required=True)
    p.add_argument("--record", metavar="FILE")
    p.add_argument("--lines", type=int, default=60, help="how much of a failed test's output is shown (60)")
    p.add_argument("results", nargs="*")
    args = p.parse_args()
    tally = Tally(read_expected(args.skips))
    added = {}
    for path in args.results:
        sums = added.setdefault(os.path.splitext(os.path.basename(path))[0], {})
        for key, more in tally.read(path).items():
            sums[key] = sums[key] + more if key in sums else more
    if args.record:
        record(args.record, added, tally.seconds)
    if tally.passed + tally.failed == 0:
        tally.failed = 1
        tally.failures.append(("everything", "no test was run at all"))
    tally.show(args.lines)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
