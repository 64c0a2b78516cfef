#!/usr/bin/env python3
"""What active messages over RDMA devices cost beside raw endpoints, in a machine whose clock is the instructions that it has executed,
its kernel's with them (tests/vm/vm --counted): am_cost.py BUILD

A round trip takes at most 1.1 times the raw one. Stores of 64 KB and more are at least 0.98 of the raw stream, those of 2 KB half of it.
"""

import os
import subprocess
import sys

PROGRAM = os.path.join(sys.argv[1], "tests", "am", "am_pingpong")
TRIP, STORES = 1.1, {2048: 1 / 0.5, 65536: 1 / 0.98, 131072: 1 / 0.98}        # a window holds no more
TRIPS, BYTES = 200, 1 << 20


def took(what, size, times):
    """Of each, in instructions."""
    run = subprocess.run((PROGRAM, what, str(size), str(times), os.environ["VM_ADDR"], os.environ["VM_PEER"]), stdout=subprocess.PIPE,
                         text=True, check=True)
    return float(run.stdout)


def compare(name, size, times, most):
    raw, am = (took(what, size, times) for what in name)
    print(f"{size} bytes: {name[0]} {raw:.0f}, {name[1]} {am:.0f}: {am / raw:.3f}, at most {most:.3f}", flush=True)
    return am <= raw * most


def main():
    took("raw", 32, 10)                 # in memory now: while the machine waits for a file its clock leaps
    took("store", 2048, 10)
    good = [compare(("raw", "am"), size, TRIPS, TRIP) for size in (32, 56, 88)]
    good += [compare(("stream", "store"), size, BYTES // size, most) for size, most in STORES.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
