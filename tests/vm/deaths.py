#!/usr/bin/env python3
"""Daemons and servers that die while sockets over verbs are at work between two machines (tests/vm/vm --hosts 2):
deaths.py BUILD [SCENE...] [restarts=N]"""

import os
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import (HOST, PATIENCE, PEER, PORT, STARTER, UNET, Caller, Program, barrier, configure, daemon, keeper, play,  # noqa: E402
                   python, serve, serve_exact, settle, sh, status, until)

BYTES = 3 << 20
RESTARTS = next((int(a[9:]) for a in sys.argv if a.startswith("restarts=")), 50)
EACH = 256 << 10                                # bytes, of a call to a server that is killed
EACH_LIFE = 10                                  # seconds, in which one is killed and the next one listens, on a slow machine

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


def dies(name, kill_here):
    """In the middle of a transfer on both machines; then another client, whose server has slept in accept() all the while."""
    if HOST == "a":
        s = serve_exact(2)
        barrier(name)
        barrier(f"{name}-part")
        kill_here()
        barrier(f"{name}-killed")
        s.says(f"{BYTES} bytes")
        until(lambda: any(p["port"] == PORT for p in status()["listeners"]), "a unetd that knows the port")
        barrier(f"{name}-again")
        s.says(f"{BYTES} bytes")
        s.end()
        barrier(f"{name}-done")
        return
    barrier(name)
    c = Caller(BYTES, how="part")
    c.part()
    barrier(f"{name}-part")
    kill_here()
    barrier(f"{name}-killed")
    c.say()
    c.all()
    barrier(f"{name}-again")                    # until then it would be met by the kernel's sockets
    c = Caller(BYTES, how="part")
    c.part()
    c.say()
    c.all()
    barrier(f"{name}-done")


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
    until(lambda: len(status()["neighbours"]) == 1, "the stack of the scene before to be gone")
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


def kill_both():
    """Neither sees the other die."""
    both = daemon(), keeper()
    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    kill(*both)


def both_die_a():
    dies("both", kill_both)


def restarts_a():
    """A server is killed and started again on its port, at any moment of somebody's calls."""
    settle("restarts")
    barrier("restarts")
    s = Program(STARTER, "restart", str(RESTARTS), str(PORT))
    s.says(f"{RESTARTS} killed")
    barrier("restarted", PATIENCE + EACH_LIFE * RESTARTS)
    barrier("restarts-done")
    os.killpg(s.child.pid, signal.SIGKILL)
    s.end(None)


def restarts_b():
    """No call waits for what has gone: it ends well, or is refused or reset. The last server is found."""
    settle("restarts")
    barrier("restarts")
    c = Program(STARTER, "chase", PEER, str(PORT), str(EACH))
    c.over_verbs(1)
    barrier("restarted", PATIENCE + EACH_LIFE * RESTARTS)
    if not c.runs():
        c.end()
    c.say()
    text = c.line()
    print(text, flush=True)
    if "stuck" in text:
        print(sh(UNET, "ss"), sh(UNET, "status"), sh(UNET, "stat"), flush=True)
        raise AssertionError(text)
    c.end()
    barrier("restarts-done")


unetd_dies_b, keeper_dies_b, both_die_b = unetd_dies_a, keeper_dies_a, both_die_a
SCENES = ("unetd_dies", "keeper_dies", "both_die", "moves", "lost_close", "silent")
LONG = ("restarts",)                            # bench/vm --long


def main():
    configure("deaths")
    play(globals(), LONG if "restarts" in sys.argv else SCENES)


if __name__ == "__main__":
    main()
