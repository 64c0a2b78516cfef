#!/usr/bin/env python3
"""Groups and broadcasts, by an ordinary program that knows of no stack: calls as in ip(7).

    group.py hear GROUP IFADDR PORT COUNT [options]      joins, says "joined", and prints COUNT datagrams with their senders
    group.py errors HOST - PORT                           what the error queue says of a closed port, and of too much
    group.py filters GROUP IFADDR 0 --index NAME         what is said to whole source filters, set and asked for
    group.py query - IFADDR 0 --ttl SECONDS               asks who is a member, as an IGMPv2 querier
    group.py say DEST IFADDR PORT TEXT ... [options]     sends each text to a group or a broadcast address; --joined: all
                                                         of them as one datagram (MSG_MORE); --stay: does not end
                                                         before its standard input does
"""

import argparse
import ctypes
import select
import socket
import struct
import sys

MSG_MORE = 0x8000
SECONDS, IP_PKTINFO, IP_MTU_DISCOVER, IP_RECVERR, IP_RECVTTL = 120, 8, 10, 11, 12


def mreq(group, ifaddr):
    return socket.inet_aton(group) + socket.inet_aton(ifaddr)


def beside(control):
    """What came with a datagram: by which interface, to whom, our own address there, TTL."""
    said = []
    for level, kind, data in control:
        if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
            index, spec, to = struct.unpack("@i4s4s", data)
            said += ["by", socket.if_indextoname(index), "to", socket.inet_ntoa(to), "at", socket.inet_ntoa(spec)]
        elif (level, kind) == (socket.IPPROTO_IP, socket.IP_TTL):
            said += ["ttl", str(struct.unpack("@i", data)[0])]
    return said


def hear(a):
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(a.sockets)]
    for s in socks:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((a.bind, a.port))
        s.settimeout(SECONDS)
        if a.beside:
            s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            s.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        if a.group == "none":
            continue
        if a.source:
            s.setsockopt(socket.IPPROTO_IP, 39, mreq(a.group, a.ifaddr) + socket.inet_aton(a.source))
        elif a.index:
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                         socket.inet_aton(a.group) + bytes(4) + struct.pack("@i", socket.if_nametoindex(a.index)))
        else:
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreq(a.group, a.ifaddr))
        if a.only:
            s.setsockopt(socket.IPPROTO_IP, IP_MSFILTER, old_filter(a.group, a.ifaddr, INCLUDE, a.only))
    print("joined", flush=True)
    for _ in range(a.count):
        for s in socks:
            data, control, _, (host, _) = s.recvmsg(65536, 256)
            print(" ".join([host, data.decode() if len(data) < 100 else str(len(data))] + beside(control)), flush=True)
    if a.leave:
        for s in socks:
            s.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, mreq(a.group, a.ifaddr))
        print("left", flush=True)
        sys.stdin.read()


IP_MSFILTER, MCAST_MSFILTER, INCLUDE, EXCLUDE = 41, 48, 1, 0
LIBC = ctypes.CDLL(None, use_errno=True)


def storage(address, family=socket.AF_INET):
    return struct.pack("@HH4s120x", family, 0, socket.inet_aton(address))


def old_filter(group, ifaddr, mode, sources, n=None):
    """struct ip_msfilter"""
    return (mreq(group, ifaddr) + struct.pack("@II", mode, len(sources) if n is None else n) +
            b"".join(map(socket.inet_aton, sources)))


def new_filter(group, index, mode, sources, n=None, family=socket.AF_INET):
    """struct group_filter"""
    return (struct.pack("@I4x", index) + storage(group, family) + struct.pack("@II", mode, len(sources) if n is None else n) +
            b"".join(map(storage, sources)))


def said(call, s, name, value, *more):
    """What the call says: an errno, or the value and its length afterwards."""
    room = ctypes.create_string_buffer(value, max(len(value), 1))
    if call(s.fileno(), socket.IPPROTO_IP, name, room, *more) == 0:
        return room.raw
    return socket.errno.errorcode[ctypes.get_errno()]


def set_filter(s, name, value, length=None):
    r = said(LIBC.setsockopt, s, name, value, len(value) if length is None else length)
    return r if isinstance(r, str) else "set"


def get_filter(s, name, value, length=None):
    n = ctypes.c_uint32(len(value) if length is None else length)
    r = said(LIBC.getsockopt, s, name, value, ctypes.byref(n))
    if isinstance(r, str):
        return r
    head, each, at = (16, 4, 0) if name == IP_MSFILTER else (144, 128, 4)
    mode, count = struct.unpack("@II", r[head - 8:head])
    sources = [socket.inet_ntoa(r[i + at:i + at + 4]) for i in range(head, n.value, each)]
    return f"length {n.value} mode {mode} sources {count}: {' '.join(sources)}"


def filters(a):
    """All of a filter's life in both forms, and what is refused."""
    one, two, three = "10.78.0.3", "10.78.0.4", "10.78.0.5"
    forms = ((IP_MSFILTER, old_filter, a.ifaddr, "192.0.2.77", 16),
             (MCAST_MSFILTER, new_filter, socket.if_nametoindex(a.index), 7777, 144))
    for name, form, where, nowhere, head in forms:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("", 0))

        def put(group, mode, sources, at=where, **more):
            length = more.pop("length", None)
            print("set", group, mode, sources, more, length, set_filter(s, name, form(group, at, mode, sources, **more), length))

        def get(group, room, at=where, **more):
            length = more.pop("length", None)
            value = form(group, at, 7, ["0.0.0.0"] * room, **more)
            print("get", group, room, more, length, get_filter(s, name, value, length))

        put(a.group, EXCLUDE, [])
        put(a.group, EXCLUDE, [one])
        put(a.group, INCLUDE, [])
        get(a.group, 1)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreq(a.group, a.ifaddr))
        get(a.group, 1)
        put(a.group, INCLUDE, [one, two])
        for room in range(4):
            get(a.group, room)
        get(a.group, 0, length=head - 1)
        get("192.0.2.1", 1)
        get("239.9.9.9", 1)
        get(a.group, 1, at=nowhere)
        put(a.group, EXCLUDE, [three])
        get(a.group, 3)
        s.setsockopt(socket.IPPROTO_IP, 38, mreq(a.group, a.ifaddr) + socket.inet_aton(two))        # IP_BLOCK_SOURCE
        get(a.group, 3)
        put("192.0.2.1", EXCLUDE, [])
        put(a.group, 2, [one])
        put(a.group, EXCLUDE, [one], at=nowhere)
        put(a.group, EXCLUDE, [one], n=2)
        put(a.group, EXCLUDE, [one], n=0x10000000)
        put(a.group, EXCLUDE, [one], length=head - 1)
        if name == MCAST_MSFILTER:
            put(a.group, EXCLUDE, [one], family=socket.AF_INET6)
            get(a.group, 1, family=socket.AF_INET6)
        get(a.group, 3)
        put(a.group, EXCLUDE, [])
        get(a.group, 3)
        put(a.group, INCLUDE, [])
        get(a.group, 3)
        put(a.group, INCLUDE, [])
        s.close()


def say(a):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if a.ifaddr != "any":
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(a.ifaddr))
    if a.broadcast:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    if a.same_port:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("", a.port))
    if a.quiet:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    if a.ttl is not None:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, a.ttl)
    for i, text in enumerate(a.text):
        data = text.encode() if not text.isdigit() else b"x" * int(text)
        try:
            s.sendto(data, MSG_MORE if a.joined and i + 1 < len(a.text) else 0, (a.group, a.port))
        except OSError as e:
            print(socket.errno.errorcode[e.errno])
            return
    print("sent", flush=True)
    if a.stay:
        sys.stdin.read()        # a bridge asks whose the port is when it looks at what it sent


def kept(s):
    """The oldest error that the socket keeps."""
    poll = select.poll()
    poll.register(s, 0)
    poll.poll(SECONDS * 1000)
    data, control, flags, about = s.recvmsg(2000, 512, socket.MSG_ERRQUEUE)
    for level, kind, what in control:
        if (level, kind) == (socket.IPPROTO_IP, IP_RECVERR):
            err, origin, code, number, _, info, _ = struct.unpack("@IBBBBII", what[:16])
            name = socket.inet_ntoa(what[20:24]) if origin == 2 else "nobody"
            print(socket.errno.errorcode[err], "origin", origin, "type", code, number, "info", info, "from", name)
    print("about", len(data), data[:20].decode(), *about, "flags", hex(flags))


def errors(a):
    """To a closed port, then more than the path carries."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    s.sendto(b"anybody there? " * 20, (a.group, a.port))
    kept(s)
    s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, 2)
    try:
        s.sendto(bytes(3000), (a.group, a.port))
    except OSError as e:
        print(socket.errno.errorcode[e.errno])
    kept(s)


def query(a):
    """An IGMP general query as a router of an older version sends it (RFC 2236 2), from this host; answers within a second."""
    message = bytes([0x11, a.ttl * 10, 0, 0]) + bytes(4)
    total = sum(struct.unpack("!4H", message))
    total = (total & 0xFFFF) + (total >> 16)
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(a.ifaddr))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([148, 4, 0, 0]))
    s.sendto(message[:2] + struct.pack("!H", ~total & 0xFFFF) + message[4:], ("224.0.0.1", 0))
    print("asked")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("hear", "say", "errors", "filters", "query"))
    p.add_argument("group")
    p.add_argument("ifaddr")
    p.add_argument("port", type=int)
    p.add_argument("text", nargs="*")
    p.add_argument("--count", type=int, default=1)
    p.add_argument("--sockets", type=int, default=1)
    p.add_argument("--bind", default="")
    p.add_argument("--source")
    p.add_argument("--only", action="append")
    p.add_argument("--index")
    p.add_argument("--beside", action="store_true")
    p.add_argument("--same-port", action="store_true")
    p.add_argument("--quiet", action="store_true")
    p.add_argument("--leave", action="store_true")
    p.add_argument("--stay", action="store_true")
    p.add_argument("--joined", action="store_true")
    p.add_argument("--broadcast", action="store_true")
    p.add_argument("--ttl", type=int)
    a = p.parse_args()
    {"hear": hear, "say": say, "errors": errors, "filters": filters, "query": query}[a.what](a)


if __name__ == "__main__":
    main()
