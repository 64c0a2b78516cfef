#!/usr/bin/env python3
"""Devices that go and come back while sockets over verbs are at work between two machines (tests/vm/vm --hosts 2):
devices.py BUILD [SCENE...]"""

import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import ADDR, HOST, Caller, barrier, configure, counted, play, serve_exact, sh, until  # noqa: E402

BYTES = 3 << 20
AWAY = 3                                        # seconds; TCP repeats meanwhile

def away(name, go, come_back, noticed):
    """In the middle of a transfer the device of machine b goes away, and comes back."""
    barrier(name)
    if HOST == "a":
        s = serve_exact(1)
        barrier(f"{name}-ready")
        s.says(f"{BYTES} bytes")
        s.end()
        barrier(f"{name}-done")
        return
    barrier(f"{name}-ready")
    c = Caller(BYTES, how="part")
    c.part()
    sh(*go)
    c.say()                                     # what it sends now waits
    time.sleep(AWAY)
    until(noticed, "somebody notices")
    for command in come_back:
        sh(*command)
    c.all()
    barrier(f"{name}-done")


def port_down():
    return counted("counters", "NI_PORT_DOWN") >= 1


def down_a():
    away("down", ("ip", "link", "set", "eth0", "down"), [("ip", "link", "set", "eth0", "up")], port_down)


def readdressed_a():
    """The address goes and with it the place in the GID table; another one takes that, so that it comes back elsewhere."""
    away("readdressed", ("ip", "addr", "del", f"{ADDR}/24", "dev", "eth0"),
         [("ip", "addr", "add", "10.78.0.9/24", "dev", "eth0"), ("ip", "addr", "add", f"{ADDR}/24", "dev", "eth0")], port_down)


down_b, readdressed_b = down_a, readdressed_a
SCENES = ("down", "readdressed")

if __name__ == "__main__":
    configure("devices")
    play(globals(), SCENES)
