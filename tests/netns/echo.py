#!/usr/bin/env python3
"""Sends an ICMP echo request of so many bytes, and wants them back: echo.py ADDRESS BYTES."""

import os
import socket
import struct
import sys


def checksum(data):
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main(address, size):
    payload = os.urandom(size)
    body = struct.pack("!HH", os.getpid() & 0xFFFF, 1) + payload
    request = struct.pack("!BBH", 8, 0, checksum(b"\x08\0\0\0" + body)) + body
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
        s.settimeout(120)
        s.sendto(request, (address, 0))
        while True:
            packet, source = s.recvfrom(65535)
            message = packet[(packet[0] & 15) * 4:]
            if source[0] == address and message[0] == 0 and message[4:] == body:
                return checksum(message) != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
