#!/usr/bin/env python3
"""What takes long, between two machines (bench/vm --long): full.py BUILD [SCENE...] [mb=N]

A gigabyte both ways, wires that lose, delay and reorder, several streams, iperf3's ways, sockperf, Redis. Every byte is compared where
the programs are ours.
"""

import json
import os
import re
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import (ADDR, HOST, PATIENCE, PEER, PORT, Caller, Program, barrier, bad_wire, configure, good_wire,  # noqa: E402
                   play, serve_exact, serve_iperf, status, stood, until)

MB = next((int(a[3:]) for a in sys.argv if a.startswith("mb=")), 1024)
SLOWEST = 1 << 20                               # bytes a second, of which a machine that does other things is capable
BYTES = 4 << 20
STREAMS = 4
STALL = 30000                                   # ms: after as many timeouts as bad luck does not bring
WIRES = (("loss 0.1%",), ("loss 1%",), ("delay 10ms",), ("delay 5ms reorder 25% 50%",))
QUESTIONS = 2000


def exact(name, *how, patience=PATIENCE):
    """Both ways at once; nothing stalls, unless the machine does."""
    (up, streams), before = how, stood()
    barrier(name)
    if HOST == "a":
        s = serve_exact(streams)
        barrier(f"{name}-ready")
        for _ in range(streams):
            s.says(f"{up} bytes")
        s.end()
        barrier(f"{name}-done", patience)
        return
    barrier(f"{name}-ready")
    c = Caller(up, up, streams, how="part")
    for _ in range(streams):
        c.says("part")
    c.over_verbs(c.packets)
    for _ in range(streams):
        c.say()
    silent = c.all(patience)
    print(f"{name}: nothing waited for longer than {silent} ms", flush=True)
    assert silent < STALL + 1000 * (stood() - before), silent
    barrier(f"{name}-done")


def gigabyte_a():
    exact("gigabyte", MB << 20, 1, patience=PATIENCE + 2 * (MB << 20) // SLOWEST)


def streams_a():
    exact("streams", BYTES, STREAMS)


def wires_a():
    for wire in WIRES:
        name = wire[0].replace(" ", "-")
        bad_wire(*wire[0].split())
        exact(name, BYTES, 1)
        good_wire()


def iperf_a():
    for how in ((), ("-P", "4"), ("-R",), ("-u", "-b", "8M", "-l", "1400")):
        name = "".join(("iperf", *how))
        barrier(name)
        if HOST == "a":
            s = serve_iperf("-1")
            barrier(f"{name}-ready")
            s.end()
            continue
        barrier(f"{name}-ready")
        c = Program("iperf3", "-J", "-c", PEER, "-t", "15", *how)     # a question takes seconds where nobody else waits
        c.over_verbs(50)
        end = json.loads(c.end())["end"]
        if "-u" in how:
            print(f"UDP: {end['sum']['packets']} datagrams, {end['sum']['lost_packets']} lost", flush=True)
            assert end["sum"]["lost_packets"] < end["sum"]["packets"] / 2, end["sum"]
        else:
            assert end["sum_received"]["bytes"] > 0, end


def sockperf_a():
    s = Program("sockperf", "server", "--tcp", "-i", ADDR, "-p", str(PORT))
    until(lambda: any(p["port"] == PORT for p in status()["listeners"]), "sockperf listens")
    barrier("sockperf")
    barrier("sockperf-done")
    os.killpg(s.child.pid, signal.SIGTERM)
    s.end(None)


def sockperf_b():
    barrier("sockperf")
    c = Program("sockperf", "ping-pong", "--tcp", "-i", PEER, "-p", str(PORT), "-t", "5", "-m", "64", "--data-integrity")
    c.over_verbs(50)
    text = c.end()
    print(text, flush=True)
    assert int(re.search(r"\[Valid Duration\].*ReceivedMessages=(\d+)", text).group(1)) > 50, text
    assert re.search(r"# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0", text), text
    barrier("sockperf-done")


def redis_a():
    s = Program("redis-server", "--bind", ADDR, "--port", str(PORT), "--save", "", "--protected-mode", "no")
    until(lambda: "Ready to accept connections" in s.line(), "Redis listens")
    barrier("redis")
    barrier("redis-done")
    os.killpg(s.child.pid, signal.SIGTERM)
    s.end(None)


def redis_b():
    barrier("redis")
    c = Program("redis-benchmark", "-h", PEER, "-p", str(PORT), "-n", str(QUESTIONS), "-c", "8", "-t", "set,get,lrange_100", "--csv")
    c.over_verbs(QUESTIONS / 2)
    rates = {line.split('"')[1]: float(line.split('"')[3]) for line in c.end().splitlines()[1:]}
    print(f"Redis: {rates}", flush=True)
    assert {"SET", "GET"} < set(rates) and min(rates.values()) > 0, rates
    barrier("redis-done")


gigabyte_b, streams_b, wires_b, iperf_b = gigabyte_a, streams_a, wires_a, iperf_a
SCENES = ("wires", "streams", "iperf", "sockperf", "redis", "gigabyte")

if __name__ == "__main__":
    configure("full")
    play(globals(), SCENES)
