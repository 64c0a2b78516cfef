#!/usr/bin/env python3
"""Pictures in comments are as they were drawn: clang-format folds what is wider than the page, and drops its indentation."""

import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ["UNET_SOURCE"]
WIDTH = 100
DRAWN = re.compile(r"\s*\* {3,}\S")             # a line of a picture, or of a list
FOLDED = re.compile(r"\s*\* ([a-z(]\S*)")       # what stood at its end


def folded(lines):
    """Numbers of lines whose end was put on the next one."""
    for i, (line, after) in enumerate(zip(lines, lines[1:]), 1):
        rest = FOLDED.match(after)
        if DRAWN.match(line) and rest and len(line) + 1 + len(rest[1]) > WIDTH:
            yield i


class Comments(unittest.TestCase):
    maxDiff = None

    def test_no_picture_is_folded(self):
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h"], cwd=SOURCE, capture_output=True,
                                text=True, check=False)
        wrong = []
        for name in (n for n in listed.stdout.split() if os.path.isfile(os.path.join(SOURCE, n))):
            with open(os.path.join(SOURCE, name), encoding="utf-8", errors="replace") as f:
                wrong += [f"{name}:{i}: wider than {WIDTH} columns: fold it by hand" for i in folded(f.read().split("\n"))]
        self.assertEqual(wrong, [])

    def test_a_folded_one_would_be_found(self):
        line = " *   first() -> second()" + 68 * " " + "what"
        self.assertEqual(list(folded([line, " * comes_of_it() then"])), [1])
        self.assertEqual(list(folded([line, " *   third()"])), [])


if __name__ == "__main__":
    unittest.main()
