#!/usr/bin/env python3
"""Files, functions and tests that documents and comments name are there."""

import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ["UNET_SOURCE"]
INDEX = ("docs/index.md", "docs/packet.md", "CONTRIBUTING.md")     # pages whose functions are ours
PAST = {"docs/performance-notes.md"}            # what a page says is gone
FILE = re.compile(r"(?<![\w./-])([\w.{},-]+(?:/[\w.{},-]+)*\.(?:c|h|S|py|def|md|csv|sh))\b")
COMMENT = re.compile(r"/\*.*?\*/", re.S)
TEST = re.compile(r"`([a-z]\w*_(?:test|long|fuzz))`")
SCENE = re.compile(r"`([a-z]\w*_\w*)`")         # in the last column of a table of PROVED
PROVED = {"docs/security.md"}
STEP = re.compile(r" *(?:ops->)?(\w+)(?:, \w+)* +((?:\w+/)+[\w.]+\.[ch])\b")
PLACEHOLDER = re.compile(r"NAME|DATE|^a\.b\.c$")


def text(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def listed():
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=SOURCE, capture_output=True, text=True, check=False)
    names = done.stdout.split() or [os.path.relpath(os.path.join(d, f), SOURCE) for d, _, fs in os.walk(SOURCE) for f in fs]
    return {n for n in names if os.path.isfile(os.path.join(SOURCE, n)) and not n.startswith("build/")}


def each(name):
    """a_{b,c}.h is a_b.h and a_c.h."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return [found[1] + part + found[3] for part in found[2].split(",")] if found else [name]


class Names(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.files = listed()
        cls.plain = {os.path.basename(n) for n in cls.files}
        cls.rooms = {n.split("/")[0] for n in cls.files if "/" in n}

    def is_there(self, name, where):
        beside = os.path.normpath(os.path.join(os.path.dirname(where), name))
        return "/" not in name and name in self.plain or name in self.files or f"include/{name}" in self.files or beside in self.files

    def pages(self):
        return [n for n in self.files if n.endswith(".md")]

    def test_files_that_a_page_names(self):
        wrong = [(page, name) for page in self.pages() for found in FILE.findall(text(page)) for name in each(found)
                 if name not in PAST and not PLACEHOLDER.search(name) and not self.is_there(name, page)]
        self.assertEqual(wrong, [])
        self.assertGreater(len(self.pages()), 10)

    def test_functions_that_the_index_names(self):
        code = "".join(text(n) for n in self.files if n.endswith((".c", ".h", ".def", ".cmake")))
        words = set(re.findall(r"\w+", code))
        wrong = [(page, name) for page in INDEX for name in re.findall(r"`(\w+)\(\)`", text(page)) if name not in words]
        self.assertEqual(wrong, [])

    def test_functions_are_in_the_file_of_their_line(self):
        """docs/packet.md: a function, and the file that has it, under that name or with a prefix of its own."""
        lines = [m.groups() for m in map(STEP.match, text("docs/packet.md").splitlines()) if m]
        wrong = [line for line in lines if not re.search(rf"{line[0]}\(", text(line[1]))]
        self.assertEqual(wrong, [])
        self.assertGreater(len(lines), 60)

    def test_tests_that_a_page_names(self):
        """A scene is a word of tests/, in a list perhaps without its who_; a test's name may be its folder and its file."""
        tests = [n for n in self.files if n.startswith("tests/")]
        words = set(re.findall(r"\w+", "".join(text(n) for n in tests)))
        sources = {os.path.splitext(n)[0] for n in tests}

        def is_test(name):
            name = name.removesuffix("_planted")
            made = {f"tests/{name[:i]}/{name[i + 1:]}" for i, c in enumerate(name) if c == "_"} | {f"tests/fuzz/{name}"}
            return {name, name.removeprefix("who_")} & words or sources & made

        wrong = []
        for page in self.pages():
            named = set(TEST.findall(text(page)))
            if page in PROVED:
                rows = [line.rstrip("| ").rsplit("|", 1)[-1] for line in text(page).splitlines() if line.startswith("|")]
                named.update(name for row in rows for name in SCENE.findall(row))
            wrong += [(page, name) for name in sorted(named) if not is_test(name)]
        self.assertEqual(wrong, [])

    def test_files_that_a_comment_names(self):
        """Headers of the system are not ours to check: a header counts if its folder is ours."""
        wrong = []
        for name in (n for n in self.files if n.endswith((".c", ".h"))):
            for said in (s for comment in COMMENT.findall(text(name)) for found in FILE.findall(comment) for s in each(found)):
                ours = said.split("/")[0] in self.rooms if "/" in said else not said.endswith(".h")
                if ours and not PLACEHOLDER.search(said) and not self.is_there(said, name):
                    wrong.append((name, said))
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
