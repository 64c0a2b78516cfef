#!/usr/bin/env python3
"""An ordinary program that lists the host's IPv4 addresses in each way that the kernel and libc have; for programs_test.py, which
runs it where the kernel has the addresses, and where unetd has them."""

import ctypes
import ctypes.util
import fcntl
import mmap
import os
import socket
import struct

IFREQ, NAME = 40, 16
SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS = 0x8910, 0x8912, 0x8913
ABOUT = {"address": 0x8915, "peer": 0x8917, "broadcast": 0x8919, "mask": 0x891b}
UP = 1
RTM_NEWADDR, RTM_GETADDR, NLMSG_DONE, DUMP = 20, 22, 3, 0x301
SOL_NETLINK, NETLINK_GET_STRICT_CHK = 270, 12
ADDRESSES, IFA_CACHEINFO = (1, 2, 4), 6


class Sockaddr(ctypes.Structure):
    _fields_ = [("family", ctypes.c_ushort), ("port", ctypes.c_ushort), ("addr", ctypes.c_ubyte * 4)]


class Ifaddrs(ctypes.Structure):
    pass


Ifaddrs._fields_ = [("next", ctypes.POINTER(Ifaddrs)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint),
                    ("addr", ctypes.POINTER(Sockaddr)), ("mask", ctypes.POINTER(Sockaddr)),
                    ("broadcast", ctypes.POINTER(Sockaddr)), ("data", ctypes.c_void_p)]


def shown(p):
    return socket.inet_ntoa(bytes(p.contents.addr)) if p and p.contents.family == socket.AF_INET else None


def by_libc():
    libc, first = ctypes.CDLL(None), ctypes.POINTER(Ifaddrs)()
    assert libc.getifaddrs(ctypes.byref(first)) == 0
    at, families = first, []
    while at:
        a = at.contents
        families.append(a.addr.contents.family if a.addr else 0)
        if families[-1] == socket.AF_INET:
            print("libc", a.name.decode(), hex(a.flags), shown(a.addr), shown(a.mask), shown(a.broadcast), a.data)
        at = a.next
    order = [socket.AF_PACKET, socket.AF_INET, socket.AF_INET6]
    print("in order", families == sorted(families, key=order.index))
    libc.freeifaddrs(first)


def ask(s, what, name):
    """What an ioctl says of an interface."""
    return fcntl.ioctl(s, what, struct.pack(f"{NAME}s{IFREQ - NAME}x", name.encode()))[NAME:]


def told_nowhere(s, what):
    """What becomes of a question in memory that cannot be written to."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.mmap(-1, mmap.PAGESIZE)
    page[:6] = b"cable0"
    at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    libc.mprotect(at, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ)
    return libc.ioctl(s.fileno(), ctypes.c_ulong(what), at), ctypes.get_errno()


def listed(s, room):
    """The entries that SIOCGIFCONF gives with room for so many, and a little; room 0: how long they are, of all."""
    buffer = ctypes.create_string_buffer(room * IFREQ + 5) if room else None
    conf = struct.pack("iP", room * IFREQ + 5 if room else 0, ctypes.addressof(buffer) if room else 0)
    length = struct.unpack("iP", fcntl.ioctl(s, SIOCGIFCONF, conf))[0]
    if not room:
        return length
    entries = [buffer.raw[at:at + IFREQ] for at in range(0, length, IFREQ)]
    return [(e[:NAME].rstrip(b"\0").decode(), socket.inet_ntoa(e[NAME + 4:NAME + 8])) for e in entries]


def by_ioctl(s):
    print("ioctl", listed(s, 0), listed(s, 9), listed(s, 1))
    for _, name in socket.if_nameindex():
        print("ioctl", name, hex(struct.unpack("H", ask(s, SIOCGIFFLAGS, name)[:2])[0]))
        for what, number in ABOUT.items():
            try:
                print("ioctl", name, what, socket.inet_ntoa(ask(s, number, name)[4:8]))
            except OSError as e:
                print("ioctl", name, what, e.strerror)
    try:
        ask(s, ABOUT["address"], "nothing0")
    except OSError as e:
        print("ioctl", e.strerror)
    print("ioctl", [told_nowhere(s, number) for number in ABOUT.values()])


def question(family, strict=0):
    return struct.pack("IHHIIBBBBI", 24, RTM_GETADDR, DUMP, 7, 0, family, 0, 0, 0, strict).ljust(152, b"\0")


def asked(s, family, strict=0):
    """The parts of what rtnetlink answers, each a datagram, read as `ip` reads: its length first."""
    s.send(question(family, strict))
    while True:
        length, _, _, _ = s.recvmsg_into([], 0, socket.MSG_PEEK | socket.MSG_TRUNC)
        part, _, flags, who = s.recvmsg(length)
        assert len(part) == length and flags == 0 and who == (0, 0)
        at = 0
        while at < length:
            size, kind, flags, seq, pid = struct.unpack_from("IHHII", part, at)
            assert seq == 7 and pid == s.getsockname()[0]
            if kind == NLMSG_DONE:
                return
            yield flags, part[at + 16:at + size]
            at += (size + 3) & ~3


def without_reading():
    """More than are kept at once, of sockets that are closed before their answer is read; their numbers are taken by others."""
    for _ in range(10):
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        s.send(question(socket.AF_INET))
        number = s.detach()
        with open("/dev/null", "rb") as nothing:
            os.dup2(nothing.fileno(), number)


def by_netlink():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.bind((0, 0))
        print("netlink", sum(1 for _ in asked(s, socket.AF_INET6)) > 0)
        for strict in 0, socket.if_nametoindex("lo"), socket.if_nametoindex("cable0"):
            if strict:
                s.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
            for line in sorted(described(*a) for a in asked(s, socket.AF_INET, strict)):
                print("netlink", strict and "of one", line)


def described(flags, message):
    family, prefix, bits, scope, index = struct.unpack_from("BBBBI", message)
    found, at = {}, 8
    while at < len(message):
        size, kind = struct.unpack_from("HH", message, at)
        found[kind] = message[at + 4:at + size]
        at += (size + 3) & ~3
    found[IFA_CACHEINFO] = found[IFA_CACHEINFO][:8]         # for how long; and not, when it was made
    return f"{flags:x} {family} {prefix} {bits:x} {scope} {socket.if_indextoname(index)} " + " ".join(
        f"{kind}: {socket.inet_ntoa(v) if kind in ADDRESSES else v.hex()}" for kind, v in sorted(found.items()))


if __name__ == "__main__":
    without_reading()
    by_libc()
    by_netlink()
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        by_ioctl(s)
