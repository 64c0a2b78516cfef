#!/usr/bin/env python3
"""The law of includes: a folder includes only what a link line of its CMakeLists.txt names, and no folders include in a circle."""

import collections
import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ["UNET_SOURCE"]
OUTSIDE = ("tests", "bench", "examples")        # whoever tests or measures may look anywhere


def lines_of(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
        return f.read()


def rooms():
    """The folders of the product: those with C in them, each with its files."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=SOURCE, capture_output=True, text=True, check=False)
    files = listed.stdout.split() or [os.path.relpath(os.path.join(d, f), SOURCE) for d, _, fs in os.walk(SOURCE) for f in fs]
    out = collections.defaultdict(list)
    for f in files:
        if f.endswith((".c", ".h", ".S")) and f.split("/")[0] not in OUTSIDE + ("include", "build"):
            if os.path.exists(os.path.join(SOURCE, f)):
                out[os.path.dirname(f)].append(f)
    return out


def includes(room, files):
    """(other room, file, header) for each include of this tree's that leaves the room."""
    for f in files:
        for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', lines_of(f), re.M):
            other = os.path.dirname(header)
            if other != room and os.path.exists(os.path.join(SOURCE, header)):
                yield other, f, header


def targets(room):
    """The targets that a folder's CMakeLists.txt makes, and what it links them with."""
    text = re.sub(r"#.*", "", lines_of(os.path.join(room, "CMakeLists.txt")))
    made = re.findall(r"\badd_(?:library|executable)\(\s*([\w-]+)", text)
    named = [n for body in re.findall(r"\btarget_link_libraries\(\s*[\w-]+([^)]*)\)", text) for n in body.split()]
    return made, set(named)


def circle(arrows):
    """A circle of rooms, or []."""
    state = {}

    def walk(room, path):
        state[room] = "open"
        for other in sorted(arrows[room]):
            if state.get(other) == "open":
                return path[path.index(other):] + [other]
            if other not in state and (found := walk(other, path + [other])):
                return found
        state[room] = "done"
        return []

    for room in sorted(arrows):
        if room not in state and (found := walk(room, [room])):
            return found
    return []


class Includes(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.rooms = rooms()
        self.home, self.named = {}, {}
        for room in self.rooms:
            made, self.named[room] = targets(room)
            for target in made:
                self.home[target] = room

    def test_there_are_rooms(self):
        self.assertIn("base", self.rooms)
        self.assertGreater(len(self.rooms), 20)

    def test_a_room_includes_what_its_link_line_names(self):
        wrong = []
        for room, files in self.rooms.items():
            allowed = {self.home[t] for t in self.named[room] if t in self.home}
            wrong += [f"{f} includes {h}: no target of {other}/ is on a link line of {room}/CMakeLists.txt"
                      for other, f, h in includes(room, files) if other not in allowed]
        self.assertEqual(wrong, [])

    def test_no_circle_of_rooms(self):
        arrows = collections.defaultdict(set)
        for room, files in self.rooms.items():
            arrows[room].update(other for other, _, _ in includes(room, files))
        self.assertEqual(circle(collections.defaultdict(set, arrows)), [])

    def test_a_circle_would_be_found(self):
        self.assertEqual(circle(collections.defaultdict(set, {"a": {"b"}, "b": {"c"}, "c": {"b"}})), ["b", "c", "b"])


if __name__ == "__main__":
    unittest.main()
