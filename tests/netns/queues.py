#!/usr/bin/env python3
"""An Ethernet device with several receive queues: a TAP whose cable is another interface of this network namespace.

usage: queues.py TAP INTERFACE COUNT

What comes by the interface comes by a queue that its ports choose, as in a NIC. Says "ready"; when it is told to end, how many packets
came by each queue."""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys

TUNSETIFF, TAP, NO_PI, MULTI_QUEUE = 0x400454CA, 0x0002, 0x1000, 0x0100
ETH_P_ALL, PACKET_OUTGOING = 3, 4


def queue(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP | NO_PI | MULTI_QUEUE))
    return fd


def chosen(frame, count):
    """Of what has no ports the first."""
    if frame[12:14] != b"\x08\x00" or frame[23] not in (6, 17):
        return 0
    return sum(frame[34:38]) % count


def main(tap, name, count):
    queues = [queue(tap) for _ in range(int(count))]
    came = [0] * len(queues)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as wire:
        wire.bind((name, ETH_P_ALL))
        signal.signal(signal.SIGTERM, lambda *_: (print(json.dumps(came), flush=True), os._exit(0)))
        print("ready", flush=True)
        while True:
            for f in select.select([wire, *queues], [], [])[0]:
                with contextlib.suppress(OSError):      # one end is not up (yet), or has no room: packets are lost
                    if f is not wire:
                        wire.send(os.read(f, 65536))
                        continue
                    frame, where = wire.recvfrom(65536)
                    if where[2] != PACKET_OUTGOING:
                        i = chosen(frame, len(queues))
                        os.write(queues[i], frame)
                        came[i] += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
