#!/usr/bin/env python3
"""What a program of the native API sets, as the peer of its connection sees it, for control_test.py:

    control.py NETNS INTERFACE PEER_MAC OUR_MAC OUR_ADDRESS PEER_ADDRESS SCENE

The peer's packets come from and go to a packet socket (script.py). Of every segment to the peer its right edge is looked at,
ACK + window: it never goes back, and never beyond what the scene says. What came of each step is printed."""

import ctypes
import errno
import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from script import FIRST, Peer  # noqa: E402

LIB = ctypes.CDLL(os.path.join(os.environ["UNET_BUILD"], "libunet.so"), use_errno=True)
for name in ("unet_send", "unet_recv"):
    getattr(LIB, name).restype = ctypes.c_ssize_t
CREDIT = 2                      # UNET_WINDOW_CREDIT
PATIENCE = 60                   # seconds for what comes for certain
HELD = 0.3                      # seconds in which nothing may come
ACK_DELAY = 0.1                 # seconds: less than the least timeout
SO_TIMESTAMPNS = 35
NS_PER_MS = 1000000


class Sized(ctypes.Structure):
    def __init__(self, **values):
        super().__init__(size=ctypes.sizeof(self), **values)


class Window(Sized):            # struct unet_window
    _fields_ = [(name, ctypes.c_uint32) for name in ("size", "mode", "bytes", "most", "unit", "offered", "granted")]


class Flow(Sized):              # struct unet_flow
    _fields_ = [("size", ctypes.c_uint32), ("send_window", ctypes.c_uint32), ("rate", ctypes.c_uint64),
                ("rto_min", ctypes.c_int64), ("rto_max", ctypes.c_int64), ("ack_delay", ctypes.c_int64), ("ack_every", ctypes.c_uint32),
                ("burst", ctypes.c_uint32), ("unsent_most", ctypes.c_uint32), ("mss", ctypes.c_uint32)]


class Sock:
    """A socket of the native API."""

    def __init__(self, number):
        self.number = number

    def __getattr__(self, call):
        def made(*args):
            n = getattr(LIB, f"unet_{call}")(self.number, *args)
            if n < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            return n
        return made

    def window(self, **values):
        self.window_set(ctypes.byref(Window(**values)))

    def flow(self, **values):
        now = Flow()
        self.flow_get(ctypes.byref(now))
        for field, value in values.items():
            setattr(now, field, value)
        self.flow_set(ctypes.byref(now))

    def option(self, name, value):
        self.setsockopt(socket.IPPROTO_TCP, name, ctypes.byref(ctypes.c_int(value)), 4)

    def reads(self, n):
        """So many bytes, which there are."""
        got = self.recv(ctypes.create_string_buffer(n), ctypes.c_size_t(n), socket.MSG_WAITALL)
        assert got == n, got

    def nothing_to_read(self):
        try:
            n = self.recv(ctypes.create_string_buffer(1), ctypes.c_size_t(1), socket.MSG_DONTWAIT)
        except OSError as e:
            assert e.errno == errno.EAGAIN, e
        else:
            raise AssertionError(f"{n} more to read")

    def writes(self, n):
        got = self.send(bytes(n), ctypes.c_size_t(n), 0)
        assert got == n, got


class Other(Peer):
    """The peer of one connection, MSS 1000, of which it keeps the books."""

    edge = acked = scale = 0    # bytes of its own stream: what it may send, what was acknowledged
    sent = 0                    # of ours: the last that was seen

    def opens(self, scale=False, **window):
        """A connection to a listener of ours, which has this window; None: the stack's own."""
        at = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", 8080, socket.inet_aton(self.us))
        self.listener = Sock(LIB.unet_socket(socket.AF_INET, socket.SOCK_STREAM, 0))
        if window:
            self.listener.window(**window)
        self.listener.bind(at, len(at))
        self.listener.listen(1)
        self.port = 8080
        self.sends("S", 0, wnd=65535, opts=b"\2\4\x03\xe8" + b"\1\3\3\0" * scale)
        answer = self.packet(PATIENCE)
        self.iss = struct.unpack("!I", answer[24:28])[0]
        self.edge = struct.unpack("!H", answer[34:36])[0]           # of a SYN: never scaled (RFC 7323 §2.2)
        options = answer[40:20 + (answer[32] >> 4) * 4]
        self.scale = options[options.index(b"\3\3") + 2] if scale else 0
        self.says(".")
        s = Sock(self.listener.accept(None, None))
        s.option(socket.TCP_NODELAY, 1)
        return s

    def says(self, flags, at=0, n=0, ack=None):
        """A segment at this byte of its stream; it acknowledges all that it has seen, or so much."""
        self.sends(flags, at + 1, 1 + (self.sent if ack is None else ack), n, wnd=65535)

    def hears(self, most, seconds):
        """One segment of ours: its right edge is not before what it was, and not beyond `most`. Its last byte; None: nothing came."""
        ip = self.packet(seconds)
        if ip is None:
            return None
        seq, ack = struct.unpack("!II", ip[24:32])
        assert not ip[33] & 4, "a reset"
        self.acked = (ack - FIRST - 1) % 2 ** 32
        edge = self.acked + (struct.unpack("!H", ip[34:36])[0] << self.scale)
        assert self.edge <= edge <= most, f"{self.edge} was promised, {most} may be, {edge} is"
        self.edge = edge
        return (seq - self.iss - 1) % 2 ** 32 + struct.unpack("!H", ip[2:4])[0] - 20 - (ip[32] >> 4) * 4

    def is_told(self, acked, edge):
        """At last both; and no other edge after that."""
        end = time.monotonic() + PATIENCE
        while (self.acked, self.edge) != (acked, edge):
            assert self.hears(edge, end - time.monotonic()) is not None, f"{self.acked} {self.edge}: {acked} {edge} did not come"
        self.holds()
        print("acknowledged", acked, "edge", edge)

    def holds(self):
        while self.hears(self.edge, HELD) is not None:
            pass

    def is_sent(self, total, most):
        """So many bytes in all, of which it acknowledges a segment whenever `most` are in flight, and all that has waited for ACK_DELAY:
        a machine that is slow may have made us repeat something, and send less at a time since. How many were in flight is printed."""
        end = time.monotonic() + PATIENCE
        una, largest = self.sent, 0
        while una < total:
            last = self.hears(2 ** 32, ACK_DELAY)
            assert last is not None or time.monotonic() < end, f"{self.sent} of {total} came, {una} are acknowledged"
            if last is None and self.sent > una:
                una = self.sent
                self.says(".", ack=una)
            self.sent = max(self.sent, last or 0)
            largest = max(largest, self.sent - una)
            while self.sent - una >= min(most, total - una) > 0:
                una = min(una + 1000, self.sent)
                self.says(".", ack=una)
        print("sent", total, "in flight", largest)


def grant(s, n):
    try:
        s.window_grant(n)
    except OSError as e:
        print("grant", n, errno.errorcode[e.errno])


# ---- scenes ----

def exactly_what_was_granted(peer):
    s = peer.opens(mode=CREDIT)
    peer.is_told(0, 0)
    grant(s, 1)
    peer.is_told(0, 1)
    grant(s, 1000)
    peer.is_told(0, 1001)
    peer.says("P.", 0, 1000)
    peer.says("P.", 1000, 1000)         # of which one byte was granted
    peer.is_told(1001, 1001)
    grant(s, 7)                         # before anything is read
    peer.is_told(1001, 1008)
    s.reads(1001)
    s.nothing_to_read()
    peer.holds()


def held_shut_and_opened_again(peer):
    s = peer.opens(mode=CREDIT, bytes=3000)
    for at in range(0, 3000, 1000):
        peer.says("P.", at, 1000)
    peer.is_told(3000, 3000)
    s.reads(3000)                       # which grants nothing
    peer.holds()
    for at in 2999, 3000:               # probes of the window: with an old byte, as Linux, and with a new one (RFC 9293 §3.8.6.1)
        for _ in range(3):
            peer.says("P.", at, 1)
            assert peer.hears(3000, PATIENCE) is not None
    peer.is_told(3000, 3000)
    s.nothing_to_read()
    grant(s, 2000)
    peer.is_told(3000, 5000)
    for at in range(3000, 6000, 1000):
        peer.says("P.", at, 1000)
    peer.is_told(5000, 5000)
    s.reads(2000)
    s.nothing_to_read()


def no_more_than_the_most(peer):
    s = peer.opens(mode=CREDIT, bytes=1500, most=5000)
    peer.is_told(0, 1500)
    grant(s, 3501)
    peer.holds()
    grant(s, 3500)
    peer.is_told(0, 5000)
    grant(s, 1)
    peer.holds()


def in_units_of_the_scale(peer):
    s = peer.opens(scale=True, mode=CREDIT, bytes=100000, most=8000000)
    print("unit", 1 << peer.scale)
    peer.says("P.", 0, 1)
    peer.is_told(1, 1 + 99968)          # 100,000 less the byte, rounded down
    grant(s, 95)
    peer.says("P.", 1, 31)              # 100,095 less 32: it is told with this acknowledgement
    peer.is_told(32, 32 + 99968)
    grant(s, 64)
    peer.is_told(32, 32 + 100096)


def a_clamp_is_raised(peer):
    s = peer.opens()
    s.option(socket.TCP_WINDOW_CLAMP, 3000)
    promised = peer.edge                # is kept
    for at in range(0, promised, 1000):
        peer.says("P.", at, min(1000, promised - at))
    peer.is_told(promised, promised)    # read sooner it moves the edge sooner, the rest by less than a segment (RFC 9293 §3.8.6.2.2)
    s.reads(promised)
    peer.is_told(promised, promised + 3000)
    s.option(socket.TCP_WINDOW_CLAMP, 13000)
    peer.is_told(promised, promised + 13000)


def no_more_in_flight(peer):
    s = peer.opens()
    s.flow(send_window=2500)            # 500 are less than half: not worth a segment
    s.writes(8000)
    peer.is_sent(8000, 2000)
    s.flow(send_window=4000)
    s.writes(8000)
    peer.is_sent(16000, 4000)
    s.flow(send_window=0)
    s.writes(6000)
    peer.is_sent(22000, 6000)


def timeouts(peer):
    """Milliseconds from one repetition of a segment to the next, of which nothing is ever heard."""
    s = peer.opens()
    s.flow(rto_min=20 * NS_PER_MS, rto_max=1000 * NS_PER_MS)
    for n in range(1, 21):              # what a round trip takes
        s.writes(10)
        peer.is_sent(10 * n, 10)
    peer.wire.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    s.writes(100)
    at = []
    while len(at) < 10:
        frame, more, _, address = peer.wire.recvmsg(65536, 64)
        if address[2] != socket.PACKET_OUTGOING and frame[26:30] == socket.inet_aton(peer.us) and frame[47] & 8:
            at.append(sum(x * unit for x, unit in zip(struct.unpack("=qq", more[0][2]), (1000, 1e-6))))
    print(*(f"{b - a:.1f}" for a, b in zip(at, at[1:])))


if __name__ == "__main__":
    globals()[sys.argv[7]](Other(sys.argv[1:7]))
