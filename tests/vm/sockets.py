#!/usr/bin/env python3
"""Sockets over verbs between two machines (tests/vm/vm --hosts 2): sockets.py BUILD [SCENE...] [no-checksum] [rounds=N]

Unmodified programs (python3, iperf3) under `unet run` on both; machine a serves, b calls. What must travel over the queue pairs
is known by the counters: the kernel's sockets would do it, too.
"""

import json
import mmap
import os
import signal
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from scene import (ADDR, BUILD, PATIENCE, PEER, PORT, SHIMMED, STARTER, UNET, Caller, Program, bad_wire, barrier, configure,  # noqa: E402
                   count_handles, counted, descriptors, devices, good_wire, handles, play, python, read, serve, serve_exact,
                   serve_iperf, sh, status, until, write)

DATAGRAMS = os.path.join(BUILD, "tests", "vm", "datagrams")
BYTES = 4 << 20
FEW = 1 << 20
EACH = 64 << 10                                 # bytes, of a start
ROUNDS = next((int(a[7:]) for a in sys.argv if a.startswith("rounds=")), 50)
SETTLED = 50 if ROUNDS > 50 else 10              # rounds, after which nothing more is to be left behind
DRIVER_FDS = 6                                  # more of them, where the keeper has come to drive
# The parent listens and never looks again; its children accept.
PREFORK = """
import os, socket, sys, signal
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1]))); s.listen(64)
for i in range(2):
    if os.fork() == 0:
        while True:
            c, a = s.accept(); c.sendall(c.recv(65536)); c.close()
print("ready", flush=True); sys.stdin.readline(); os.killpg(0, signal.SIGTERM)
"""
ASK = """
import socket, sys
for i in range(int(sys.argv[3])):
    c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); c.sendall(b"question %d" % i)
    assert c.recv(100) == b"question %d" % i
    c.close()
print("asked", flush=True)
"""
# What sshd's child is left, and what Python needs; who makes another call is killed. `child`: who listens drives the queue pair, and
# another answers; `self`: who drives it locks itself in, and then knows two peers that come and go.
LOCKED = """
import ctypes, os, platform, socket, struct, sys
assert platform.machine() == "x86_64"
allowed = 0, 1, 3, 7, 9, 11, 12, 13, 14, 15, 25, 28, 35, 39, 48, 202, 228, 230, 231, 271
op = lambda code, jt, jf, k: struct.pack("=HBBI", code, jt, jf, k)
def lock_in():
    text = op(0x20, 0, 0, 0) + b"".join(op(0x15, 0, 1, n) + op(6, 0, 0, 0x7fff0000) for n in allowed) + op(6, 0, 0, 0x80000000)
    text = ctypes.create_string_buffer(text, len(text))
    program = ctypes.create_string_buffer(struct.pack("=H6xQ", len(text) // 8, ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0) == 0
def answer(conns):
    while d := os.read(conns[0].fileno(), 65536):
        os.write(conns[0].fileno(), d)
        if d[-1:] == b"!":
            conns = conns[1:] + conns[:1]
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(sys.argv[1]))); s.listen(64); print("ready", flush=True)
conns = [s.accept()[0] for i in range(2)]
if sys.argv[2] == "self" or os.fork() == 0:
    lock_in()
    answer(conns)
    os._exit(7)
print("status", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
# Two stacks, which end one after the other.
TALK_LOCKED = """
import socket, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); c.settimeout(200)
print("there", flush=True); sys.stdin.readline()
def say(what):
    c.sendall(what); got = b""
    while len(got) < len(what):
        got += c.recv(65536) or sys.exit("ended")
    assert got == what
for i in range(300):
    say(b"%d?" % i)
for i in range(20):
    say(bytes([65 + i]) * 30000)
say(b"!")
print("talked", flush=True)
"""
UDP_SERVER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", int(sys.argv[1]))); print("ready", flush=True)
while True:
    d, a = s.recvfrom(65536); s.sendto(d, a)
    if d == b"end":
        break
"""
UDP_CLIENT = """
import select, socket, sys, threading
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], int(sys.argv[2]))); s.settimeout(2)
some = bytes(range(251)) * 40
def echoed(send, *wanted):
    for attempt in range(5):
        left = list(wanted)
        send()
        try:
            while left:
                d = s.recv(65536)
                if d in left:
                    left.remove(d)
            return
        except TimeoutError:
            pass
    sys.exit("no answer")
for d in [some[n % 99:n % 99 + n] for n in (0, 1, 100, 1472, 4000, 4067, 4068, 4069, 9000)] + [b"%d" % i for i in range(50)]:
    echoed(lambda: s.send(d), d)
assert s.getsockopt(socket.IPPROTO_IP, 14) == 4096      # IP_MTU
s.setsockopt(17, 103, 1400)                     # UDP_SEGMENT
echoed(lambda: s.send(some[:3000]), some[:1400], some[1400:2800], some[2800:3000])
s.setsockopt(17, 103, 0)
def many(letter):
    for n in range(50):
        s.send(letter * (3000 + n))
threads = [threading.Thread(target=many, args=(bytes([65 + i]),)) for i in range(3)]
for t in threads:
    t.start()
come = 0
try:
    while come < 150:
        d = s.recv(65536)
        assert 3000 <= len(d) < 3050 and d == d[:1] * len(d), d
        come += 1
except TimeoutError:
    assert come > 0
for t in threads:
    t.join()
print("echoed", flush=True)
while sys.stdin not in select.select([s, sys.stdin], [], [], 0.1)[0]:
    pass
s.send(b"end")
"""
REFUSED = """
import socket, sys
s = socket.socket()
print(s.connect_ex((sys.argv[1], int(sys.argv[2]))))
"""
# How long the quickest took, of as many as it takes: on a machine that is slow it is not soon the first one.
SOON_REFUSED = """
import socket, sys, time
took = []
for host in sys.argv[3:]:
    s = socket.socket(); began = time.monotonic()
    assert s.connect_ex((host, int(sys.argv[1]))) == 111
    took.append(time.monotonic() - began)
    if took[-1] < float(sys.argv[2]):
        break
print(min(took), took)
"""
MISSED = [8, 3]                                 # of what strangers send: without a channel, from a wrong source
CM_PATIENCE = 1.25                              # seconds for a question that nobody answers (unetd/agent/cm.h)


# ---- scenes: what a does, what b does ----

def transfer_a():
    s = serve_exact(2)
    barrier("transfer")
    for _ in range(2):
        s.says(f"{BYTES} bytes")
    s.end()
    barrier("transferred")


def transfer_b():
    """Both ways at once; and what a program that is killed has written arrives all the same."""
    barrier("transfer")
    c = Caller(BYTES, BYTES, how="part")
    c.part()
    c.say()
    c.all()
    c = Caller(BYTES, how="die")
    assert c.end(None) == ""
    barrier("transferred")


def wire_a():
    """Of what leaves either machine some is lost and some is overtaken."""
    bad_wire("delay", "2ms", "loss", "1%", "reorder", "25%")
    s = serve_exact(1)
    barrier("wire")
    s.says(f"{FEW} bytes")
    s.end()
    good_wire()
    barrier("wired")


def wire_b():
    bad_wire("delay", "2ms", "loss", "1%", "reorder", "25%")
    barrier("wire")
    c = Caller(FEW, FEW, how="part")
    c.part()
    c.say()
    c.all()
    good_wire()
    barrier("wired")


def prefork_a():
    s = serve(PREFORK)
    barrier("prefork")
    barrier("preforked")
    s.say()
    s.end(None)


def prefork_b():
    barrier("prefork")
    assert python(ASK, PEER, PORT, 20).end() == "asked"
    barrier("preforked")


def locked_a():
    for who in "child", "self":
        s = serve(LOCKED, who)
        barrier(f"locked-{who}")
        if who == "child":
            s.says("status 7")
            s.end()
        else:
            s.end(7)
        barrier(f"locked-{who}-done")


def locked_b():
    for who in "child", "self":
        barrier(f"locked-{who}")
        calls = []
        for _ in range(2):                      # served in this order
            calls.append(python(TALK_LOCKED, PEER, PORT))
            calls[-1].says("there")
        for c in calls:
            c.say()
            c.says("talked")
            c.end()
        barrier(f"locked-{who}-done")


def udp_a():
    s = serve(UDP_SERVER)
    barrier("udp")
    barrier("strangers")
    missed = lambda: [counted("drops", "NI_NO_CHANNEL"), counted("drops", "NI_BAD_SOURCE")]
    until(lambda: all(is_ >= all_ for is_, all_ in zip(missed(), MISSED)), f"{MISSED} missed", instead=missed)
    write("missed", missed())
    barrier("counted")
    s.end()


def shared(pid, name):
    """A descriptor of the program's library, by what it is."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        if name in os.readlink(path):
            return path
    raise AssertionError(f"{pid} has no {name}")


def put_packet(link, packet):
    """As the library does, into the ring of the stack (unet/verbs/vlink.h)."""
    with open(link, "r+b") as f:
        m = mmap.mmap(f.fileno(), 0)
    prod, = struct.unpack_from("<I", m, 44)
    data = (len(m) - 256 * 4096) + prod % 256 * 4096
    m[data:data + len(packet)] = packet
    struct.pack_into("<III", m, 56 + prod % 256 * 12, 0, len(packet), len(packet))
    struct.pack_into("<I", m, 44, prod + 1)


def packet(src, sport, proto):
    to_int = lambda a: bytes(int(x) for x in a.split("."))
    l4 = struct.pack(">HHHH", sport, PORT, 8, 0) if proto == 17 else struct.pack(">HHIIBBHHH", sport, PORT, 1, 0, 0x50, 2, 1000, 0, 0)
    hdr = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(l4), 0, 0x4000, 64, proto, 0) + to_int(src) + to_int(PEER))
    add = sum(struct.unpack(">10H", hdr))
    add = (add & 0xffff) + (add >> 16)
    struct.pack_into(">H", hdr, 10, ~((add & 0xffff) + (add >> 16)) & 0xffff)
    pseudo = to_int(src) + to_int(PEER) + struct.pack(">HH", proto, len(l4)) + l4
    add = sum(struct.unpack(f">{len(pseudo) // 2}H", pseudo))
    add = (add & 0xffff) + (add >> 16)
    l4 = bytearray(l4)
    struct.pack_into(">H", l4, 6 if proto == 17 else 16, ~((add & 0xffff) + (add >> 16)) & 0xffff)
    return bytes(hdr) + bytes(l4)


def udp_b():
    barrier("udp")
    c = python(UDP_CLIENT, PEER, PORT)
    c.says("echoed")
    pid = int(sh("pgrep", "-n", "-g", str(c.child.pid), "python3").split()[0])
    with open(shared(pid, "unet-book"), "rb") as f:
        _, qpn, qkey = struct.unpack_from("<III", f.read(64), 24)
    stranger = os.path.join(BUILD, "tests", "vm", "stranger")
    sh(stranger, ADDR, PEER, str(qpn), str(qkey))               # nobody vouched for it: dropped by the stack
    sh(stranger, ADDR, PEER, str(qpn), str(qkey ^ 1))           # ... by the device
    now = status()
    assert [(r["address"], r["queue_pair"], r["ports"]) for r in now["neighbours"]] == [(PEER, qpn, 1)], now
    assert now["queue_pairs"][0]["address"] == ADDR and 0 < now["queue_pairs"][0]["pinned_kb"] < 4096, now
    assert f"queue pair {qpn}" in sh(UNET, "arp") and "rxe0" in sh(UNET, "if")
    sh(os.path.join(BUILD, "tests", "vm", "claimer"), str(now["queue_pairs"][0]["queue_pair"]))
    link = shared(pid, "unet-link")
    put_packet(link, packet(ADDR, 999, 17))                     # a port that is not the stack's
    put_packet(link, packet("10.77.0.77", 999, 17))             # an address that is not the host's
    put_packet(link, packet(ADDR, 999, 6))
    barrier("strangers")
    barrier("counted")
    c.say()
    c.end()
    missed = read("missed")
    assert missed == MISSED, missed


def datagrams_a():
    s = Program(DATAGRAMS, "serve", str(PORT))
    s.says("ready")
    barrier("datagrams")
    until(lambda: counted("counters", "UDP_IN") > 0, "datagrams")
    os.killpg(s.child.pid, signal.SIGKILL)                       # with some on their way
    s.end(None)
    barrier("datagrams-killed")
    s = Program(DATAGRAMS, "serve", str(PORT))
    s.says("ready")
    barrier("datagrams-again")
    s.says("done")
    s.end()
    barrier("datagrams-done")


def datagrams_b():
    barrier("datagrams")
    c = Program(DATAGRAMS, "call", PEER, str(PORT))
    barrier("datagrams-killed")
    os.killpg(c.child.pid, signal.SIGKILL)
    c.end(None)
    barrier("datagrams-again")
    c = Program(DATAGRAMS, "call", PEER, str(PORT))
    c.says("done")
    c.end()
    barrier("datagrams-done")


def iperf_a():
    barrier("iperf")
    s = serve_iperf()
    barrier("iperf-ready")
    barrier("iperf-done")
    os.killpg(s.child.pid, signal.SIGTERM)
    s.end(None)


def iperf_b():
    """For longer where the machines are so slow that it has ended before it was seen."""
    barrier("iperf")
    barrier("iperf-ready")
    seen = 0
    for seconds in "5", "60":
        c = Program("iperf3", "-J", "-c", PEER, "-t", seconds)
        while seen <= 100 and c.runs():
            try:
                seen = c.sent()
            except AssertionError:          # it ends just now
                pass
        end = json.loads(c.end())["end"]
        assert end["sum_received"]["bytes"] > 0, end
        if seen > 100:
            break
    barrier("iperf-done")
    assert seen > 100, seen


def rounds(stays, play_some):
    """So many starts of a program, and then the others, leave the same behind in both machines: what the first of them did.
    Who drives the server's queue pair may change meanwhile, and with it who has the device open, and the last peer's handle."""
    count_handles()
    barrier("rounds")
    play_some(SETTLED)
    barrier("rounds-settled", PATIENCE + 3 * SETTLED)
    until(stays, "nothing is left to finish")
    before = devices(), handles(), descriptors()
    print(f"round {SETTLED}: {before}", flush=True)
    barrier("rounds-counted")
    play_some(ROUNDS - SETTLED)
    barrier("rounds-done", PATIENCE + 3 * ROUNDS)
    until(stays, "nothing is left to finish")
    now = lambda: (devices(), handles(), descriptors())

    def is_left():
        after = now()
        return after[0] == before[0] and after[1] <= before[1] + 1 and after[2] <= before[2] + DRIVER_FDS

    until(is_left, f"what there was after round {SETTLED}: {before}", instead=now)
    print(f"round {ROUNDS}: {now()}", flush=True)
    barrier("rounds-left")


def rounds_a():
    s = Program(STARTER, "serve", str(PORT))
    s.says("ready")
    rounds(lambda: status()["neighbours"] == [], lambda n: None)
    os.killpg(s.child.pid, signal.SIGKILL)
    s.end(None)


def rounds_b():
    """Two at a time. A listener keeps the daemons, so that what they leave is seen, too."""
    s = serve_exact(1)

    def starts(n):
        done = subprocess.run((UNET, "run", STARTER, "start", str(n), "2", STARTER, "call", PEER, str(PORT), str(EACH)),
                              capture_output=True, text=True, timeout=PATIENCE + 3 * n, check=False, env=dict(os.environ, **SHIMMED))
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout, end="", flush=True)

    rounds(lambda: len(status()["stacks"]) == 1, starts)
    os.killpg(s.child.pid, signal.SIGKILL)
    s.end(None)


def refused_a():
    barrier("refused")


def refused_b():
    assert python(REFUSED, PEER, PORT + 1).end() == "111"
    barrier("refused")


HOSTS = [f"10.77.0.{n}" for n in range(11, 51)]


def alone_a():
    barrier("alone")


def alone_b():
    """Hosts that have no RoCE (a network namespace) say so, and are not waited for as one that lost the question would be."""
    sh("ip", "netns", "add", "alone")
    sh("ip", "link", "add", "ve0", "type", "veth", "peer", "name", "ve1", "netns", "alone")
    sh("ip", "link", "set", "ve0", "up")
    sh("ip", "-n", "alone", "link", "set", "ve1", "up")
    for host in HOSTS:
        sh("ip", "-n", "alone", "addr", "add", f"{host}/32", "dev", "ve1")
        sh("ip", "route", "add", f"{host}/32", "dev", "ve0", "src", ADDR)
    sh("ip", "-n", "alone", "route", "add", f"{ADDR}/32", "dev", "ve1")
    quickest = python(SOON_REFUSED, PORT, CM_PATIENCE, *HOSTS).end()
    assert float(quickest.split()[0]) < CM_PATIENCE, quickest
    sh("ip", "netns", "del", "alone")
    barrier("alone")


SCENES = ("transfer", "wire", "prefork", "locked", "udp", "datagrams", "iperf", "rounds", "refused", "alone")


def main():
    configure("vm", checksum="no" if "no-checksum" in sys.argv else "yes")
    play(globals(), SCENES)


if __name__ == "__main__":
    main()
