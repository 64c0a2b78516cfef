#!/usr/bin/env python3
"""Ports that a test may tell two programs of: free, one test's at a time, and not among those from which the kernel and unetd
choose, so that nobody gets one by chance between two programs. As a program: prints one."""

import random
import socket

FIRST, LAST = 5000, 60000
claims = []                             # names in the abstract namespace, held until the process ends


def candidates():
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        low, high = map(int, f.read().split())
    ports = [p for p in range(FIRST, LAST) if not low <= p <= high] or list(range(FIRST, LAST))
    random.SystemRandom().shuffle(ports)
    return ports


def claimed(port):
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0unet-test-port-{port}")
    except OSError:
        claim.close()
        return False
    claims.append(claim)
    return True


def is_free(port):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as s:
            try:
                s.bind(("", port))
            except OSError:
                return False
    return True


def free_port():
    return next(p for p in candidates() if claimed(p) and is_free(p))


if __name__ == "__main__":
    print(free_port())
