#!/usr/bin/env python3
"""Daemons that die while sockets over verbs are at work between two machines (tests/vm/vm --hosts 2): deaths.py BUILD [SCENE...]"""

import json
import os
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import (HOST, OUT, PATIENCE, PEER, PORT, barrier, configure, counted, play,  # noqa: E402
                   python, serve, settle, status, until)

CHUNKS = 48

# Takes one connection, says so, and sums what comes; then the next. Between, it sleeps in accept() and asks unetd nothing.
SERVER = """
import hashlib, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1]))); s.listen(64); print("ready", flush=True)
for i in range(int(sys.argv[2])):
    c, a = s.accept(); h = hashlib.sha1(); n = 0
    while d := c.recv(65536):
        h.update(d); n += len(d)
    print(n, h.hexdigest(), flush=True); c.close()
"""
# Sends a part, waits to be told, sends the rest.
CLIENT = """
import hashlib, random, socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); h = hashlib.sha1(); r = random.Random(7); n = int(sys.argv[3])
for i in range(n):
    if i == n // 3:
        print("part", flush=True); sys.stdin.readline()
    d = r.randbytes(65536); h.update(d); c.sendall(d)
c.shutdown(socket.SHUT_WR); c.recv(1); print(n * 65536, h.hexdigest(), flush=True)
"""
# The parent makes the queue pair and never looks again: the keeper drives for the child, who accepts.
PREFORK = """
import os, socket, sys, signal
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1]))); s.listen(64)
if os.fork() == 0:
    while True:
        c, a = s.accept()
        while d := c.recv(65536):
            c.sendall(d)
        c.close()
print("ready", flush=True); signal.pause()
"""
TALK = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); c.settimeout(100)
def say(what):
    c.sendall(what); got = b""
    while len(got) < len(what):
        d = c.recv(65536)
        if not d:
            sys.exit("ended")
        got += d
    assert got == what
say(b"one"); print("talked", flush=True)
sys.stdin.readline(); say(b"two" * 5000); print("talked on", flush=True)
"""
IDLE = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); c.sendall(b"x"); print("there", flush=True)
try:
    print("end" if c.recv(1) == b"" else "data", flush=True)
except OSError as e:
    print("error", e.errno, flush=True)
"""
HOLD = """
import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1]))); s.listen(64); print("ready", flush=True)
c, a = s.accept(); c.recv(1); print("held", flush=True)
try:
    print("end" if c.recv(1) == b"" else "data", flush=True)
except OSError as e:
    print("error", e.errno, flush=True)
"""


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def daemon():
    return status()["daemon"][0]["pid"]


def keeper():
    return status()["keepers"][0]["pid"]


def write(name, what):
    path = os.path.join(OUT, name)
    with open(path + ".new", "w", encoding="ascii") as f:
        json.dump(what, f)
    os.rename(path + ".new", path)


def read(name):
    with open(os.path.join(OUT, name), encoding="ascii") as f:
        return json.load(f)


def dies(name, kill_here):
    """In the middle of a transfer on both machines; then another client, whose server has slept in accept() all the while."""
    if HOST == "a":
        s = serve(SERVER, 2)
        barrier(name)
        barrier(f"{name}-part")
        kill_here()
        barrier(f"{name}-killed")
        write(f"{name}-first", s.line())
        write(f"{name}-second", s.line())
        s.end()
        barrier(f"{name}-done")
        return
    barrier(name)
    c = python(CLIENT, PEER, PORT, CHUNKS)
    c.says("part")
    barrier(f"{name}-part")
    kill_here()
    barrier(f"{name}-killed")
    c.say()
    sums = [c.end()]
    before = counted("counters", "NI_TX_MSGS")
    c = python(CLIENT, PEER, PORT, CHUNKS)
    c.says("part")
    until(lambda: counted("counters", "NI_TX_MSGS") > before + CHUNKS * 3, "the second goes over verbs")
    c.say()
    sums.append(c.end())
    barrier(f"{name}-done")
    assert sums == [read(f"{name}-first"), read(f"{name}-second")], sums


def unetd_dies_a():
    dies("unetd", lambda: kill(daemon()))


def keeper_dies_a():
    dies("keeper", lambda: kill(keeper()))


def moves_a():
    """unetd dies, and then the keeper, which has the queue pair: the next keeper's is told by the other unetd."""
    s = serve(PREFORK)
    barrier("moves")
    barrier("talked")
    first = status()["queue_pairs"][0]["queue_pair"]
    old = daemon()
    kill(old)
    until(lambda: status()["daemon"][0]["pid"] != old and status()["queue_pairs"], "another unetd that knows the queue pair")
    assert status()["queue_pairs"][0]["queue_pair"] == first
    kill(keeper())
    until(lambda: status()["queue_pairs"][0]["queue_pair"] != first, "another queue pair")
    barrier("moved")
    barrier("talked-on")
    os.killpg(s.child.pid, signal.SIGKILL)


def moves_b():
    barrier("moves")
    c = python(TALK, PEER, PORT)
    c.says("talked")
    barrier("talked")
    barrier("moved")
    c.say()
    assert c.end() == "talked on"
    barrier("talked-on")


def lost_close_a():
    """Everything of the peer's dies at once, so that nobody says that the stack is gone."""
    s = serve(HOLD)
    barrier("close")
    s.says("held")
    known = status()["neighbours"]
    assert len(known) == 1, known
    barrier("held")
    barrier("all-dead")
    s.says("error 104")
    until(lambda: status()["neighbours"] == [], "the channel's place is free again")
    s.end(None)
    barrier("freed")


def lost_close_b():
    barrier("close")
    c = python(IDLE, PEER, PORT)
    c.says("there")
    barrier("held")
    kill(keeper(), daemon(), c.pid())
    c.child.wait(PATIENCE)
    d = python("import socket; s = socket.socket(); s.bind(('', 7777)); s.listen(1); print('up', flush=True); input()")
    d.says("up")                     # with it comes another unetd, which knows nothing of all that
    barrier("all-dead")
    barrier("freed")
    d.say()
    d.end()


def silent_a():
    """The other host's unetd does not answer any more: after `silence` channels there end."""
    settle("silent", silence=8)
    s = serve(HOLD)
    barrier("silent")
    s.says("held")
    barrier("silent-held")
    barrier("stopped")
    s.says("error 104")
    barrier("went-on")
    s.end(None)


def silent_b():
    barrier("silent")
    c = python(IDLE, PEER, PORT)
    c.says("there")
    barrier("silent-held")
    stopped = daemon()
    os.kill(stopped, signal.SIGSTOP)
    barrier("stopped")
    barrier("went-on")
    os.kill(stopped, signal.SIGCONT)
    assert c.line() in ("error 104", "end")
    c.end(None)


unetd_dies_b, keeper_dies_b = unetd_dies_a, keeper_dies_a
SCENES = ("unetd_dies", "keeper_dies", "moves", "lost_close", "silent")


def main():
    configure("deaths")
    play(globals(), SCENES)


if __name__ == "__main__":
    main()
