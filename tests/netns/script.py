#!/usr/bin/env python3
"""Packets and calls in turns, for script_test.py:

    script.py NETNS INTERFACE PEER_MAC OUR_MAC OUR_ADDRESS PEER_ADDRESS SCENE

The calls are of a program like any other, over a shim or without one; the packets come from and go to a packet socket in NETNS, which
is the peer's. What left is printed, a line a packet: flags, sequence number, length and acknowledgement from 0 on; and what calls said."""

import ctypes
import errno
import os
import select
import socket
import struct
import sys
import time

BITS = {"S": 2, "F": 1, "R": 4, "P": 8, "U": 32, "E": 64, "W": 128, ".": 16}
QUIET = 0.1                     # seconds without a packet: all that was due has left, and nothing is repeated yet
FIRST = 1000                    # our SYN's number, and that of the first port


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Peer:
    """Who is at the other end of one connection."""

    def __init__(self, args):
        netns, self.device, mac, ours, self.us, self.them = args
        self.ether = b"".join(bytes.fromhex(m.replace(":", "")) for m in (ours, mac)) + b"\x08\0"
        here, there = (os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/net", netns))
        libc = ctypes.CDLL(None, use_errno=True)
        for ns in (there, here):
            if ns == here:
                self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
                self.wire.bind((self.device, 0x0800))
            if libc.setns(ns, 0x40000000):              # CLONE_NEWNET
                raise OSError(ctypes.get_errno(), "setns")
        self.port, self.iss = None, None

    def sends(self, flags, seq=1, ack=1, n=0, wnd=1000, opts=b""):
        bits = sum(BITS[f] for f in flags)
        acked = (self.iss + ack) % 2 ** 32 if bits & 16 else 0
        tcp = struct.pack("!HHIIBBHHH", FIRST, self.port, FIRST + seq, acked, (5 + len(opts) // 4) << 4, bits, wnd, 0, 0) + opts
        tcp += bytes(n)
        ends = socket.inet_aton(self.them) + socket.inet_aton(self.us)
        tcp = tcp[:16] + struct.pack("!H", checksum(ends + struct.pack("!HH", 6, len(tcp)) + tcp)) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + ends
        self.wire.send(self.ether + ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + tcp)

    def packet(self, seconds):
        """The next one of the connection; None: there is none."""
        until = time.monotonic() + seconds
        while select.select([self.wire], [], [], max(until - time.monotonic(), 0))[0]:
            frame, address = self.wire.recvfrom(65536)
            ip = frame[14:]
            if address[2] != socket.PACKET_OUTGOING and ip[9] == 6 and ip[12:16] == socket.inet_aton(self.us):
                return ip
        return None

    def hears(self, seconds=QUIET):
        """All that leaves until it is quiet."""
        while (ip := self.packet(seconds)) is not None:
            tcp, total = ip[20:], struct.unpack("!H", ip[2:4])[0]
            _, _, seq, ack, offset, bits = struct.unpack("!HHIIBB", tcp[:14])
            self.iss = seq if bits & 2 else self.iss
            said = "".join(f for f, bit in BITS.items() if bits & bit)
            print(said, (seq - self.iss) % 2 ** 32, total - 20 - (offset >> 4) * 4, (ack - FIRST) % 2 ** 32 if bits & 16 else "-")


def says(call, *args):
    try:
        got = call(*args)
    except OSError as e:
        got = errno.errorcode[e.errno]
    print(call.__name__, got)


def opened(peer):
    """A connection that the peer opened, MSS 1000; what left so far is not told."""
    peer.listener = socket.create_server((peer.us, 8080))
    peer.port = 8080
    peer.sends("S", 0, wnd=65535, opts=b"\2\4\x03\xe8\1\3\3\7")
    ip = peer.packet(10)
    peer.iss = struct.unpack("!I", ip[24:28])[0]
    peer.sends(".")
    s, _ = peer.listener.accept()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.setblocking(False)
    return s


# ---- scenes ----

def first_window(peer):
    s = opened(peer)
    says(s.send, bytes(20000))
    peer.hears(0.02)
    peer.sends("R")


def more_after_an_ack(peer):
    """The ACK, which releases what was held, comes before the write that is to be held."""
    s = opened(peer)
    says(s.send, bytes(40))
    peer.hears(0.02)
    peer.sends(".", ack=41)
    says(s.send, bytes(100), socket.MSG_MORE)
    peer.hears(0.05)
    says(s.send, bytes(100))
    peer.hears(0.02)


def answer_acknowledges(peer):
    s = opened(peer)
    peer.sends("P.", n=10)
    says(s.send, bytes(5))
    peer.hears()


def close_after_data(peer):
    s = opened(peer)
    peer.sends("P.", n=10)
    s.close()
    peer.hears()


def send_after_reset(peer):
    s = opened(peer)
    peer.sends("R")
    says(s.send, b"x")
    says(s.send, b"x")
    says(s.recv, 1)


def shutdown_after_reset(peer):
    s = opened(peer)
    peer.sends("R")
    says(s.shutdown, socket.SHUT_WR)


def to_a_broadcast(peer):
    s = socket.socket()
    s.settimeout(1)
    says(s.connect, (peer.us.rsplit(".", 1)[0] + ".255", 9))
    peer.hears()


if __name__ == "__main__":
    globals()[sys.argv[7]](Peer(sys.argv[1:7]))
