#!/usr/bin/env python3
"""Ordinary programs for options_test.py, which run over a shim or without one. Options are in hex; `-`: none.

    echo ADDRESS PORT                    UDP: prints the options of each datagram (IP_RECVOPTS), and sends it back with
                                         those that answer them (IP_RETOPTS), until it is stopped
    ask ADDRESS PORT OPTIONS SIZE...     UDP: a datagram of each size with these options there and back, byte-exact;
                                         prints the options that came back
    listen ADDRESS PORT MEGABYTES        TCP: takes so much and sends it back; prints what it has as IP_OPTIONS
    connect ADDRESS PORT OPTIONS MEGABYTES   the other side of it

With UNSUMMED in the environment datagrams have no checksum: Linux makes a wrong one for those with a source route, of the
first hop instead of the destination (udp_send_skb(), as of 6.12).
"""

import os
import socket
import sys
import threading

IP_OPTIONS, IP_RECVOPTS, IP_RETOPTS = 4, 6, 7
IP = socket.IPPROTO_IP
PATIENCE = 240


def options(text):
    return b"" if text == "-" else bytes.fromhex(text)


def shown(data):
    return data.hex() or "-"


def beside(ancillary, kind):
    return next((data for level, name, data in ancillary if level == IP and name == kind), b"")


def datagrams():
    s = socket.socket(type=socket.SOCK_DGRAM)
    if "UNSUMMED" in os.environ:
        s.setsockopt(socket.SOL_SOCKET, 11, 1)          # SO_NO_CHECK
    return s


def echo(address, port):
    with datagrams() as s:
        s.setsockopt(IP, IP_RECVOPTS, 1)
        s.setsockopt(IP, IP_RETOPTS, 1)
        s.bind((address, int(port)))
        while True:
            data, ancillary, _, source = s.recvmsg(65535, 512)
            print(len(data), shown(beside(ancillary, IP_RECVOPTS)), flush=True)
            s.sendmsg([data], [(IP, IP_RETOPTS, beside(ancillary, IP_RETOPTS))], 0, source)


def ask(address, port, opts, *sizes):
    with datagrams() as s:
        before = set()
        s.settimeout(5)
        s.setsockopt(IP, IP_OPTIONS, options(opts))
        s.setsockopt(IP, IP_RECVOPTS, 1)
        for size in map(int, sizes):
            sent = os.urandom(size)
            for _ in range(40):         # a datagram may be lost, and an answer late
                s.sendto(sent, (address, int(port)))
                opts = comes_back(s, sent, before)
                if opts is not None:
                    break
            else:
                sys.exit(f"{size} bytes: nothing came back")
            print(size, opts, flush=True)
            before.add(sent)


def comes_back(s, sent, before):
    """The options that it came with; None: not in time. What was asked before may be answered once more."""
    try:
        while True:
            data, ancillary, _, _ = s.recvmsg(65535, 512)
            if data == sent:
                return shown(beside(ancillary, IP_RECVOPTS))
            assert data in before, f"{len(sent)} bytes came back as {len(data)}, or other ones"
    except TimeoutError:
        return None


def take(s, count):
    got = bytearray()
    while len(got) < count:
        got += s.recv(min(count - len(got), 1 << 18)) or sys.exit(f"the end after {len(got)} bytes")
    return bytes(got)


def listen(address, port, megabytes):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, int(port)))
        s.listen(1)
        c = s.accept()[0]
    c.settimeout(PATIENCE)
    print(shown(c.getsockopt(IP, IP_OPTIONS, 64)), flush=True)
    c.sendall(take(c, int(megabytes) << 20))
    assert c.recv(1) == b""


def connect(address, port, opts, megabytes):
    data = os.urandom(int(megabytes) << 20)
    with socket.socket() as s:
        s.settimeout(PATIENCE)
        s.setsockopt(IP, IP_OPTIONS, options(opts))
        s.connect((address, int(port)))
        threading.Thread(target=s.sendall, args=(data,), daemon=True).start()
        assert take(s, len(data)) == data
        print(shown(s.getsockopt(IP, IP_OPTIONS, 64)))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
