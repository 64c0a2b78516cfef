#!/usr/bin/env python3
"""Devices that go and come back while sockets over verbs are at work between two machines (tests/vm/vm --hosts 2):
devices.py BUILD [SCENE...]"""

import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import ADDR, CHUNK, HOST, PEER, PORT, barrier, configure, counted, play, python, serve, sh, until  # noqa: E402

CHUNKS = 48
AWAY = 3                                        # seconds; TCP repeats meanwhile

SERVER = """
import hashlib, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1]))); s.listen(64); print("ready", flush=True)
for i in range(int(sys.argv[2])):
    c, a = s.accept(); h = hashlib.sha1(); n = 0
    try:
        while d := c.recv(65536):
            h.update(d); n += len(d)
        print(n, h.hexdigest(), flush=True)
    except OSError as e:
        print("error", e.errno, flush=True)
    c.close()
"""
# Says how it is getting on, so that things happen in the middle.
CLIENT = """
import hashlib, random, socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); h = hashlib.sha1(); r = random.Random(7); n = int(sys.argv[3])
for i in range(n):
    if i == n // 3:
        print("part", flush=True); sys.stdin.readline()
    d = r.randbytes(65536); h.update(d); c.sendall(d)
c.shutdown(socket.SHUT_WR); c.recv(1); print(n * 65536, h.hexdigest(), flush=True)
"""


def away(name, go, come_back):
    """In the middle of a transfer the device of machine b goes away, and comes back."""
    barrier(name)
    if HOST == "a":
        s = serve(SERVER, 1)
        barrier(f"{name}-ready")
        got = s.line()
        s.end()
        barrier(f"{name}-done")
        assert got.startswith(f"{CHUNKS * CHUNK} "), got
        return
    barrier(f"{name}-ready")
    c = python(CLIENT, PEER, PORT, CHUNKS)
    c.says("part")
    until(lambda: counted("counters", "NI_TX_MSGS") > CHUNKS * 3, "it goes over verbs")
    sh(*go)
    c.say()                                     # what it sends now waits
    time.sleep(AWAY)
    downs = counted("counters", "NI_PORT_DOWN")
    for command in come_back:
        sh(*command)
    assert c.end().startswith(f"{CHUNKS * CHUNK} ")
    barrier(f"{name}-done")
    assert downs >= 1, "nobody noticed"


def down_a():
    away("down", ("ip", "link", "set", "eth0", "down"), [("ip", "link", "set", "eth0", "up")])


def readdressed_a():
    """The address goes and with it the place in the GID table; another one takes that, so that it comes back elsewhere."""
    away("readdressed", ("ip", "addr", "del", f"{ADDR}/24", "dev", "eth0"),
         [("ip", "addr", "add", "10.78.0.9/24", "dev", "eth0"), ("ip", "addr", "add", f"{ADDR}/24", "dev", "eth0")])


down_b, readdressed_b = down_a, readdressed_a
SCENES = ("down", "readdressed")

if __name__ == "__main__":
    configure("devices")
    play(globals(), SCENES)
