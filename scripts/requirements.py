#!/usr/bin/env python3
"""Checks the requirement tables in docs/requirements, and prints the score.

    requirements.py [--open]

docs/requirements/README.md says what the columns mean. --open lists the lines that are not done, too. Exit status: 0
every line is there and says something that can be true; 1 some does not; 2 usage.
"""

import argparse
import csv
import os
import re
import sys

COLUMNS = ["id", "level", "source", "requirement", "status", "tests", "remark"]
LEVEL = re.compile(r"(MUST|SHOULD|MAY|RECOMMENDED|policy|robust|9293)\b|\(8899\)")
STATUSES = ["done", "partial", "no", "n/a"]

# Each table, and the lines it must have: a letter and the number of the last.
TABLES = {
    "link": {"L": 13},
    "arp": {"A": 11},
    "internet": {"I": 129},
    "fragments": {"F": 11},
    "icmp": {"C": 8},
    "udp": {"U": 16, "V": 8},
    "tcp": {"P": 108, "B": 7, "T": 9, "G": 12, "K": 12, "W": 10, "Q": 8, "E": 6, "N": 8, "O": 10},
}


def read(path):
    with open(path, encoding="utf-8", newline="") as f:
        return list(csv.reader(f))


def test_exists(root, name):
    """FILE:FUNCTION names a test of a C or Python program, FILE alone a script that is one test."""
    path, _, function = name.partition(":")
    full = os.path.join(root, path)
    if not path.startswith("tests/") or not os.path.isfile(full):
        return False
    if not function:
        return not path.endswith((".c", ".py"))
    with open(full, encoding="utf-8") as f:
        text = f.read()
    if not re.fullmatch(r"\w+", function):
        return False
    define = rf"^ *def {function}\(self" if path.endswith(".py") else rf"^static void {function}\(void \*\*\w+\)"
    return re.search(define, text, re.MULTILINE) is not None


def row_problems(root, row):
    """What is wrong with one line, as sentences."""
    if len(row) != len(COLUMNS):
        return [f"{len(row)} columns and not {len(COLUMNS)}"]
    line = dict(zip(COLUMNS, row))
    tests = line["tests"].split()
    bad = []
    if not LEVEL.match(line["level"]):
        bad.append(f"level {line['level']!r} is none")
    if not line["requirement"].strip():
        bad.append("no text")
    if line["status"] not in STATUSES:
        return bad + [f"status {line['status']!r} is none of {', '.join(STATUSES)}"]
    if line["status"] == "done" and not tests:
        bad.append("done, and no test says so")
    if line["status"] in ("partial", "no", "n/a") and not line["remark"].strip():
        bad.append(f"{line['status']}, and no remark says why")
    return bad + [f"no such test: {t}" for t in tests if not test_exists(root, t)]


def table_problems(root, table, rows):
    """What is wrong with a table's rows, its header among them."""
    if not rows or rows[0] != COLUMNS:
        return [f"{table}: the first line is not {','.join(COLUMNS)}"]
    expected = [f"{letter}{n}" for letter, last in TABLES[table].items() for n in range(1, last + 1)]
    ids = [row[0] if row else "" for row in rows[1:]]
    bad = [f"{table}: {i} is missing" for i in expected if i not in ids]
    bad += [f"{table}: {i} does not belong here" for i in ids if i not in expected]
    bad += [f"{table}: {i} is there twice" for i in sorted(set(ids)) if ids.count(i) > 1]
    for row in rows[1:]:
        bad += [f"{table}: {row[0] if row else '?'}: {text}" for text in row_problems(root, row)]
    return bad


def score(tables):
    """One line a table: how many lines have each status, MUSTs apart."""
    out = [f"{'table':<10} {'lines':>5}  " + " ".join(f"{s:>8}" for s in STATUSES) + "   MUST done of applicable"]
    for table, rows in tables.items():
        lines = [dict(zip(COLUMNS, row)) for row in rows[1:]]
        counts = [sum(line["status"] == s for line in lines) for s in STATUSES]
        must = [line for line in lines if line["level"].startswith("MUST") and line["status"] != "n/a"]
        done = sum(line["status"] == "done" for line in must)
        out.append(f"{table:<10} {len(lines):>5}  " + " ".join(f"{c:>8}" for c in counts) + f"   {done} of {len(must)}")
    return "\n".join(out)


def open_lines(tables):
    return [f"{row[0]:<5} {row[1]:<10} {row[4]:<8} {row[3]}: {row[6]}"
            for rows in tables.values() for row in rows[1:] if row[4] in ("partial", "no")]


def main():
    parser = argparse.ArgumentParser(description="checks docs/requirements and prints the score")
    parser.add_argument("--open", action="store_true", help="list the lines that are partial or not done")
    args = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tables = {t: read(os.path.join(root, "docs", "requirements", f"{t}.csv")) for t in TABLES}
    bad = [text for table, rows in tables.items() for text in table_problems(root, table, rows)]
    print(score(tables))
    if args.open:
        print("\n".join(open_lines(tables)))
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
