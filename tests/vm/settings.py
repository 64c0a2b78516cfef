#!/usr/bin/env python3
"""What is set for an interface over verbs, and what programs make of it, between two machines (tests/vm/vm --hosts 2):
settings.py BUILD [SCENE...]"""

import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import (BUILD, EXACT, HOST, PATIENCE, PEER, PORT, SHIMMED, UNET, Caller, Program, barrier, counted, play,  # noqa: E402
                   serve_exact, settle, sh, status, until)

BYTES = 1 << 20
ROUNDS = 40
NATIVE = os.path.join(BUILD, "tests", "vm", "native")
LEND, LENT = os.path.join(BUILD, "tests", "netns", "netns_lend"), 4 << 20
LINK_MB = 4                                     # room for one queue pair and not for two


def sums(checksum):
    """A transfer while this host's agent says that; whether packets are summed is what the two agree on."""
    name = f"sums-{checksum[0]}-{checksum[1]}"
    settle("sums", checksum=checksum["ab".index(HOST)])
    expected = checksum != ("no", "no")
    if HOST == "a":
        s = serve_exact(1)
        barrier(name)
        barrier(f"{name}-sent")
        assert [n["checksum"] for n in status()["neighbours"]] == [expected]
        barrier(f"{name}-seen")
        s.says(f"{BYTES} bytes")
        s.end()
        barrier(f"{name}-done")
        return
    barrier(name)
    c = Caller(BYTES, how="part")
    c.part()
    assert [n["checksum"] for n in status()["neighbours"]] == [expected]
    barrier(f"{name}-sent")
    barrier(f"{name}-seen")
    c.say()
    c.all()
    barrier(f"{name}-done")


def neither_sums_a():
    sums(("no", "no"))


def one_sums_a():
    sums(("yes", "no"))


class Native(Program):
    """By the native API; without the shim."""

    def __init__(self, *argv, program=NATIVE):
        self.argv = argv
        self.child = subprocess.Popen((program, *(str(a) for a in argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, start_new_session=True)


def native_a():
    """Two processes here, two there: nobody gets what is another's."""
    settle("native")
    servers = [Native("serve", PORT + i, name, ROUNDS) for i, name in enumerate(("xena", "yves"))]
    for s in servers:
        s.says("ready")
    barrier("native")
    for s in servers:
        s.says("done")
        s.end()
    barrier("native-done")


def native_b():
    settle("native")
    barrier("native")
    callers = [Native("call", PEER, PORT + i, name, ROUNDS) for i, name in enumerate(("xena", "yves"))]
    until(lambda: counted("counters", "NI_TX_MSGS") > 2 * ROUNDS, "it goes over verbs")
    until(lambda: len(status()["neighbours"]) == 2, "two channels", instead=status)
    for c in callers:
        c.says("done")
        c.end()
    barrier("native-done")


def packets():
    """That the RDMA device has sent."""
    with open("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", encoding="ascii") as f:
        return int(f.read())


def loans_a():
    """What came is lent, and given back in any order; who gives nothing back holds his own connection up, and no other."""
    settle("loans")
    server = Native("serve", PORT, program=LEND)
    until(lambda: f":{PORT + 1} " in sh(UNET, "ss", ok=False), "the server")
    barrier("loans")
    assert server.end() == f"{LENT} bytes, kept"
    barrier("loans-done")


def loans_b():
    settle("loans")
    barrier("loans")
    before = packets()
    Native("call", PEER, PORT, program=LEND).end()
    assert packets() - before >= LENT // 4096, "it went another way"
    barrier("loans-done")


def why(argv, *more):
    """What carries the program's sockets, and why."""
    done = subprocess.run((*more, UNET, "why", "--json", *argv), capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env=dict(os.environ, **SHIMMED))
    return [(r["carried"], r["why"]) for r in json.loads(done.stdout[done.stdout.index("["):])], done.stderr


def pinned_a():
    settle("pinned")
    servers = serve_exact(1), serve_exact(2, PORT + 1)
    barrier("pinned")
    barrier("pinned-done")
    for s in servers:
        s.end()


def pinned_b():
    """One queue pair more than fits in what may be pinned, and one more than a process may lock: those go by the kernel."""
    settle("pinned", pinned=LINK_MB)
    barrier("pinned")
    first = Caller(BYTES, how="part")
    first.part()
    pairs = status()["queue_pairs"]
    assert len(pairs) == 1 and 0 < pairs[0]["pinned_kb"] <= LINK_MB * 1024, pairs
    call = (EXACT, "call", PEER, str(PORT + 1), "4", "0", "1")
    told, text = why(call)
    assert ("kernel", "no memory may be pinned for another queue pair (pinned in unet.conf)") in told, (told, text)
    assert len(status()["queue_pairs"]) == 1
    first.say()
    first.all()
    until(lambda: not status()["queue_pairs"], "the first one's queue pair is gone")
    told, text = why(call, "setpriv", "--bounding-set=-ipc_lock", "prlimit", "--memlock=65536")
    assert ("kernel", "memory for a queue pair cannot be pinned (RLIMIT_MEMLOCK)") in told, (told, text)
    barrier("pinned-done")


neither_sums_b, one_sums_b = neither_sums_a, one_sums_a
SCENES = ("neither_sums", "one_sums", "native", "loans", "pinned")

if __name__ == "__main__":
    play(globals(), SCENES)
