#!/usr/bin/env python3
"""Has another compiler read every source of a build, warnings being errors, and makes nothing of them.

    reread.py [--compiler clang] [--jobs N] BUILD

BUILD has CMake's compile_commands.json. Each command is run with the other compiler and -fsyntax-only. Exit status: 0 no
source has a warning; 1 one has, and its messages are printed; 2 usage.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def reread(entry, compiler):
    """(whether it is without a warning, what was said)"""
    words = shlex.split(entry["command"])
    if "-o" in words:
        at = words.index("-o")
        del words[at:at + 2]
    done = subprocess.run([compiler, *words[1:], "-fsyntax-only", "-Werror"], cwd=entry["directory"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode == 0, done.stdout


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--compiler", default="clang")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("build")
    args = p.parse_args()
    with open(os.path.join(args.build, "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda entry: reread(entry, args.compiler), entries))
    bad = 0
    for clean, said in results:
        if not clean:
            bad += 1
            print(said)
    print(f"{len(results)} sources, {bad} with a warning")
    return 1 if bad or not results else 0


if __name__ == "__main__":
    sys.exit(main())
