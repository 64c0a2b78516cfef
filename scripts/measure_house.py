#!/usr/bin/env python3
"""How the tree reads, in figures: files and lines a folder, headers that everybody adds to, the longest functions, assertions,
lengths of sentences.

    measure_house.py [--json] [--check] [TREE]

TREE is the source (the one that this script is in). --check: exit status 1 when a function is longer than FUNCTION_MAX lines, or a
sentence of README, CONTRIBUTING or docs longer than SENTENCE_MAX words.
Exit status: 0; 1 as said; 2 usage.
"""

import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import sys

FUNCTION_MAX = 71                       # lines, as long as the longest has ever been
SENTENCE_MAX = 25                       # words
HUBS = 8                                # headers, functions and documents that are named
PAGES = ("README.md", "CONTRIBUTING.md")
NOT_PRODUCT = ("tests", "bench", "examples", "scripts", "docs", "build")
ASSERTION = re.compile(r"\b(?:assert|static_assert|CHECKED)\s*\(")
PROTOTYPE = re.compile(r"^(?!static|typedef|#|\s|extern \"C\")[a-z][\w\s*]*?\b(\w+)\([^;{}]*\)(?:\s*__attribute__\s*\(\(.*?\)\))?;", re.M)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def files_of(tree):
    listed = subprocess.run(["git", "-C", tree, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() or [os.path.relpath(os.path.join(d, f), tree) for d, _, fs in os.walk(tree) for f in fs]
    return sorted(n for n in names if os.path.isfile(os.path.join(tree, n)))


def functions(text):
    """(name, lines) of each: in this tree a body is what stands between a brace at the beginning of a line and the next one."""
    lines = text.splitlines()
    start = None
    for i, line in enumerate(lines):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            first = start
            while first > 0 and lines[first - 1] and not lines[first - 1].startswith(("/*", " *", "#", "}")):
                first -= 1
            name = re.search(r"\b(\w+)\s*\(", " ".join(lines[first:start]))
            yield (name.group(1) if name else "?"), i - first + 1
            start = None


def sentences(text):
    """Each sentence of a page's prose, in words: no code, no tables, no headings; an item of a list is a sentence."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    prose = []
    for line in text.splitlines():
        if line.startswith(("|", "#", "    ", "\t")):
            prose.append("")
        elif re.match(r"\s*(?:[-*]|\d+\.)\s", line):
            prose += ["", re.sub(r"^\s*(?:[-*]|\d+\.)\s", "", line)]
        else:
            prose.append(line.strip())
    for paragraph in re.split(r"\n\s*\n", "\n".join(prose)):
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z`(\[*])", " ".join(paragraph.split())):
            words = sentence.split()
            if len(words) > 2:
                yield words


def measure(tree):
    folders = collections.defaultdict(lambda: {"files": 0, "lines": 0, "functions": 0, "assertions": 0})
    long, hubs, pages = [], [], {}
    for name in files_of(tree):
        if name.endswith(".md"):
            said = list(sentences(read(os.path.join(tree, name))))
            if said and (name in PAGES or name.startswith("docs/") and "/" not in name[5:]):
                longest = max(said, key=len)
                pages[name] = {"sentences": len(said), "mean": round(statistics.mean(map(len, said)), 1), "longest": len(longest),
                               "longest_sentence": " ".join(longest)}
        if not name.endswith((".c", ".h")) or name.split("/")[0] in NOT_PRODUCT:
            continue
        text = read(os.path.join(tree, name))
        folder = folders[os.path.dirname(name)]
        folder["files"] += 1
        folder["lines"] += text.count("\n")
        folder["assertions"] += len(ASSERTION.findall(text))
        for function, lines in functions(text):
            folder["functions"] += 1
            long.append((lines, f"{name}:{function}"))
        if name.endswith(".h"):
            hubs.append((len(PROTOTYPE.findall(text)), name))
    lengths = [n for n, _ in long]
    return {
        "folders": dict(sorted(folders.items())),
        "lines": sum(f["lines"] for f in folders.values()),
        "functions": {"count": len(long), "median": statistics.median(lengths), "p90": statistics.quantiles(lengths, n=10)[8],
                      "longest": [{"lines": n, "where": w} for n, w in sorted(long, reverse=True)[:HUBS]]},
        "hub_headers": [{"prototypes": n, "header": h} for n, h in sorted(hubs, reverse=True)[:HUBS]],
        "pages": pages,
    }


def show(m):
    print(f"{'folder':24} files  lines  functions  assertions a thousand lines")
    for name, f in m["folders"].items():
        print(f"{name:24} {f['files']:5} {f['lines']:6} {f['functions']:10} {1000 * f['assertions'] / max(f['lines'], 1):10.1f}")
    fn = m["functions"]
    print(f"\n{m['lines']} lines, {fn['count']} functions, median {fn['median']:.0f} lines, nine of ten at most {fn['p90']:.0f}.")
    print("The longest:")
    for item in fn["longest"]:
        print(f"  {item['lines']:4}  {item['where']}")
    print("\nHeaders with the most prototypes:")
    for item in m["hub_headers"]:
        print(f"  {item['prototypes']:4}  {item['header']}")
    print("\nWords a sentence (mean, longest):")
    for name, p in m["pages"].items():
        print(f"  {p['mean']:5.1f} {p['longest']:5}  {name}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", action="store_true")
    p.add_argument("--check", action="store_true")
    p.add_argument("tree", nargs="?", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args = p.parse_args()
    m = measure(args.tree)
    if args.json:
        json.dump(m, sys.stdout, indent=2)
        print()
    else:
        show(m)
    if not args.check:
        return 0
    longest = m["functions"]["longest"][0]
    wrong = [f"{longest['where']}, {longest['lines']} lines"] if longest["lines"] > FUNCTION_MAX else []
    wrong += [f"{name}, {page['longest']} words: {page['longest_sentence']}"
              for name, page in m["pages"].items() if page["longest"] > SENTENCE_MAX]
    for line in wrong:
        print(f"too long: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
