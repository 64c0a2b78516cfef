#!/usr/bin/env python3
"""Devices that go and come back while sockets over verbs are at work between two machines (tests/vm/vm --hosts 2):
devices.py BUILD [SCENE...]

There is always a thread that sleeps in read(): it is whoever is in a call of ours that sees what becomes of a device.
"""

import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import (ADDR, HOST, UNET, Caller, barrier, configure, counted, descriptors, play, serve_exact, settle,  # noqa: E402
                   sh, status, until)

BYTES = 3 << 20
AWAY = 3                                        # seconds; TCP repeats meanwhile
ONCE = 1                                        # descriptor: of the socket that the keeper wakes others by, made when it first does

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


REMOVE = ("rdma", "link", "delete", "rxe0")     # ends when all who use the device have closed it
ADD = ("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")


def state():
    """What `unet if` says of it."""
    return json.loads(sh(UNET, "if", "--json"))[0]["state"]


def removed_a():
    away("removed", REMOVE, [ADD], lambda: state() == "down")


def lost_a():
    """It is not back in time: both ends hear of it. When it is back, everything begins anew."""
    settle("lost", silence=6)
    s = serve_exact(2)
    barrier("lost")
    s.says("error 104")
    until(lambda: status()["neighbours"] == [], "the channel's place is free")
    barrier("lost-said")
    s.says(f"{BYTES} bytes")
    s.end()
    barrier("lost-done")


def lost_b():
    settle("lost", silence=6)
    barrier("lost")
    c = Caller(BYTES, how="part")
    c.part()
    before = descriptors()
    sh(*REMOVE)
    c.say()
    text = c.end(1)                             # of its two threads the other one has EPIPE
    assert "error 104" in text or "error 32" in text, text
    assert status()["queue_pairs"] == [] or status()["queue_pairs"][0]["queue_pair"] == 0
    barrier("lost-said")
    sh(*ADD)
    until(lambda: state() == "up", "the device is back")
    c = Caller(BYTES, how="part")
    c.part()
    assert descriptors() <= before + ONCE, (descriptors(), before)
    c.say()
    c.all()
    barrier("lost-done")


down_b, readdressed_b, removed_b = down_a, readdressed_a, removed_a
SCENES = ("down", "readdressed", "removed")
LONG = ("lost",)                                # bench/vm --long

if __name__ == "__main__":
    configure("devices")
    play(globals(), LONG if "lost" in sys.argv else SCENES)
