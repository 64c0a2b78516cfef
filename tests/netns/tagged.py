#!/usr/bin/env python3
"""Sends ICMP echo requests behind VLAN tags, and prints the tags of those that are answered, as they were given:

    tagged.py INTERFACE ADDRESS TAGS...

TAGS are hexadecimal, and may be none. The last one has to be answered: what is not answered before it never will be."""

import os
import socket
import struct
import sys

from echo import checksum

iface, address, tags = sys.argv[1], sys.argv[2], sys.argv[3:]
ident = os.getpid() & 0xFFFF


def link_address():
    with open("/proc/net/arp", encoding="ascii") as f:
        [mac] = [field[3] for field in map(str.split, f) if field[0] == address and field[5] == iface]
    return bytes.fromhex(mac.replace(":", ""))


def echo(source, number):
    request = struct.pack("!BBHHH", 8, 0, 0, ident, number)
    request = request[:2] + struct.pack("!H", checksum(request)) + request[4:]
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(request), number, 0, 64, 1, 0, source, socket.inet_aton(address))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + request


with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as ear, \
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as known, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    ear.settimeout(120)
    out.bind((iface, 0))
    known.connect((address, 9))
    known.send(b"to learn the link address")
    ear.recv(2000)                      # that nobody has the port
    own = socket.inet_aton(known.getsockname()[0])
    for i, tag in enumerate(tags):
        link = link_address() + out.getsockname()[4] + bytes.fromhex(tag) + b"\x08\0"
        out.send((link + echo(own, i)).ljust(64, b"\0"))
    answered = []
    while not answered or answered[-1] != tags[-1]:
        packet = ear.recv(2000)
        kind, _, _, who, number = struct.unpack_from("!BBHHH", packet, 20)
        if (kind, who) == (0, ident):
            answered.append(tags[number])
print(*answered, sep="\n")
