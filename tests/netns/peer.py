#!/usr/bin/env python3
"""Ordinary programs for lan_test.py, which run over a shim or without one:

    both listen|connect ADDRESS PORT MEGABYTES [PAUSE [FILE]]   as much each way at once; prints SHA-256 and bytes of sent, then of
                                                         received; who connects to ADDRESS@MINE does it from that port. PAUSE:
                                                         seconds after each megabyte; with FILE so much is sent after that is
                                                         there, and without end before
    source ADDRESS PORT MEGABYTES                        so much to one of these:
    sink ADDRESS PORT                                    both print SHA-256 and count of what went over
    mirror ADDRESS PORT                                  all that comes back to whom it came from, until it is stopped
    reflect ADDRESS PORT MEGABYTES                       so much to a mirror and back, byte-exact
    echo ADDRESS PORT                                    UDP: every datagram back, until it is stopped
    answer ADDRESS PORT                                  UDP: one datagram back; prints the errno, or that it went
    nowhere ADDRESS PORT                                 UDP: one datagram from port 0
    shout ADDRESS PORT TEXT                              UDP: one datagram, and ends at once; prints the time (CLOCK_MONOTONIC)
    burst ADDRESS PORT SIZE BYTES                        UDP: so many in one call, cut into datagrams of SIZE (UDP_SEGMENT)
    sizes ADDRESS PORT SIZE BYTES                        UDP: takes so many, which have to be those of `burst`; prints the size
                                                         of each datagram
    hear ADDRESS PORT                                    UDP: prints each datagram, until it is stopped
    ask ADDRESS PORT BYTES...                            UDP: a datagram of each size there and back, byte-exact
    error tcp|udp ADDRESS PORT                           prints the errno that connect() or the exchange ends with
    many-listen ADDRESS PORT COUNT                       so many connections, open all at once; a byte comes back on each
    many ADDRESS PORT COUNT                              the other side of it
    workers ADDRESS PORT COUNT                           so many processes that accept from one listener and tell their numbers,
                                                         which are printed first, until they are stopped
    who ADDRESS PORT                                     prints the number of one of them
    names ADDRESS PORT COUNT                             accepts so many, one after another; prints where each is from
    from TO,PORT,BY...                                   connects to each from address BY, empty: any; waits for its end
    bound TO,PORT,HOW,MINE...                            connects from ports of its own: HOW `plain`, `reuse` (SO_REUSEADDR),
                                                         `late` (IP_BIND_ADDRESS_NO_PORT); MINE 0: any. A byte there and back;
                                                         prints the port, or why not; waits for its standard input to end
    chosen COUNT                                         binds so many sockets, one after another; prints the ports that were
                                                         chosen for them
    by TO,PORT,DEVICE...                                 the same, by a device (SO_BINDTODEVICE, or SO_BINDTOIFINDEX of one that
                                                         is written #DEVICE); then asks it by UDP, which
                                                         `echo` is to answer: so bound, and by IP_PKTINFO
    sources ADDRESS PORT COUNT                           UDP: so many datagrams back; prints where each is from
    by-listen DEVICE PORT COUNT                          accepts so many by a device; prints our addresses
"""

import errno
import hashlib
import os
import random
import resource
import select
import socket
import struct
import sys
import threading
import time

BLOCK = 1 << 20
SO_BINDTOIFINDEX = 62
PATIENCE = 240


def listener(address, port, backlog=1):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, int(port)))
    s.listen(backlog)
    return s


def megabytes_of(megabytes, pause, told, source):
    """... with pauses between them, counted from when the file `told` is there; None: at once."""
    left = int(megabytes)
    while left > 0:
        left -= told is None or os.path.exists(told)
        yield source.randbytes(BLOCK)
        time.sleep(float(pause))


def both(role, address, port, megabytes, pause="0", told=None):
    if role == "listen":
        s = listener(address, port).accept()[0]
    else:
        address, _, mine = address.partition("@")
        s = socket.create_connection((address, int(port)), PATIENCE, ("", int(mine)) if mine else None)
    s.settimeout(PATIENCE)
    sums, counts = [hashlib.sha256(), hashlib.sha256()], [0, 0]     # sent, received

    def add(which, data):
        sums[which].update(data)
        counts[which] += len(data)

    def send():
        for data in megabytes_of(megabytes, pause, told, random.Random(os.getpid())):
            add(0, data)
            s.sendall(data)
        s.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    while data := s.recv(BLOCK):
        add(1, data)
    sender.join()
    for digest, count in zip(sums, counts):
        print(digest.hexdigest(), count)


def source(address, port, megabytes):
    s = socket.create_connection((address, int(port)), PATIENCE)
    digest, block = hashlib.sha256(), bytearray(random.Random(os.getpid()).randbytes(BLOCK))
    for i in range(int(megabytes)):
        block[:8] = i.to_bytes(8, "little")
        digest.update(block)
        s.sendall(block)
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b""
    print(digest.hexdigest(), int(megabytes) * BLOCK)


def sink(address, port):
    s = listener(address, port).accept()[0]
    s.settimeout(PATIENCE)
    digest, count = hashlib.sha256(), 0
    while data := s.recv(BLOCK):
        digest.update(data)
        count += len(data)
    print(digest.hexdigest(), count)


def mirror(address, port):
    s = listener(address, port, 4096)

    def serve(conn):
        while data := conn.recv(BLOCK):
            conn.sendall(data)
        conn.close()

    while True:
        threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()


def reflect(address, port, megabytes):
    s = socket.create_connection((address, int(port)), PATIENCE)
    s.settimeout(PATIENCE)
    data = random.Random(os.getpid()).randbytes(BLOCK)

    def send():
        for _ in range(int(megabytes)):
            s.sendall(data)
        s.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    for i in range(int(megabytes)):
        back = b""
        while len(back) < BLOCK:
            back += s.recv(BLOCK - len(back)) or sys.exit(f"the end after {i} megabytes and {len(back)} bytes")
        assert back == data, f"megabyte {i} came back as another"
    assert s.recv(1) == b""
    sender.join()
    print("all")


def echo(address, port):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.bind((address, int(port)))
        while True:
            data, source = s.recvfrom(65535)
            s.sendto(data, source)


def answer(address, port):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.bind((address, int(port)))
        data, source = s.recvfrom(65535)
        try:
            s.sendto(data, source)
            print("went")
        except OSError as e:
            print(errno.errorcode[e.errno])


def nowhere(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as s:
        s.sendto(struct.pack(">4H", 0, int(port), 11, 0) + b"any", (address, 0))


def ask(address, port, *sizes):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((address, int(port)))
        before = set()
        for size in map(int, sizes):
            data = os.urandom(size)
            for _ in range(PATIENCE // 5):      # a datagram may be lost, and an answer late
                s.send(data)
                if comes_back(s, data, before):
                    break
                print(size, "did not come back")
            else:
                sys.exit(f"{size} bytes: nothing came back")
            before.add(data)


def comes_back(s, data, before):
    """Whether it does before the time is over; what was asked before may be answered once more."""
    try:
        while (back := s.recv(65535)) != data:
            assert back in before, f"{len(data)} bytes came back as {len(back)}, or other ones"
    except TimeoutError:
        return False
    return True


def shout(address, port, text):
    print(time.monotonic(), flush=True)
    socket.socket(type=socket.SOCK_DGRAM).sendto(text.encode(), (address, int(port)))
    os._exit(0)


def burst(address, port, size, count):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_UDP, 103, int(size))
        s.connect((address, int(port)))
        s.send(random.Random(int(size)).randbytes(int(count)))


def sizes(address, port, size, count):
    want, got = random.Random(int(size)).randbytes(int(count)), b""
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE)
        s.bind((address, int(port)))
        print("bound", flush=True)
        while len(got) < len(want):
            data = s.recv(65535)
            print(len(data), flush=True)
            got += data
    assert got == want


def hear(address, port):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.bind((address, int(port)))
        while True:
            print(s.recv(100).decode(), flush=True)


def answered(s):
    for _ in range(PATIENCE // 5):      # what is said, and its error, may be lost
        s.send(b"anybody?")
        try:
            return s.recv(100)
        except TimeoutError:
            pass
    raise TimeoutError


def error(kind, address, port):
    with socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE if kind == "tcp" else 5)
        try:
            s.connect((address, int(port)))
            if kind == "udp":
                answered(s)
            print("none")
        except TimeoutError:
            print("timeout")
        except OSError as e:
            print(errno.errorcode[e.errno])


def many_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def many_listen(address, port, count):
    many_files()
    left, conns = int(count), {}
    s = listener(address, port, 4096)
    poll = select.epoll()
    poll.register(s, select.EPOLLIN)
    while left or conns:
        for fd, _ in poll.poll(PATIENCE) or sys.exit(f"{left} never came, {len(conns)} are open"):
            if fd == s.fileno():
                c = s.accept()[0]
                conns[c.fileno()] = c
                poll.register(c, select.EPOLLIN)
                left -= 1
                continue
            data = conns[fd].recv(100)
            if data:
                conns[fd].send(data)
            else:
                conns.pop(fd).close()
    print("all")


def many(address, port, count):
    many_files()
    conns = [socket.create_connection((address, int(port)), PATIENCE) for _ in range(int(count))]
    for i, c in enumerate(conns):
        c.send(bytes((i & 255,)))
    for i, c in enumerate(conns):
        assert c.recv(100) == bytes((i & 255,)), i
    for c in conns:
        c.close()
    print("all")


def workers(address, port, count):
    s = listener(address, port, 64)
    pids = []
    for _ in range(int(count)):
        pid = os.fork()
        while pid == 0:
            with s.accept()[0] as c:
                c.send(str(os.getpid()).encode())
        pids.append(pid)
    print(*pids, flush=True)
    while os.waitpid(-1, os.WNOHANG) == (0, 0):
        select.select([s], [], [], 0)           # who never comes to its stack never lets go of a channel that it had mapped
        time.sleep(0.1)


def who(address, port):
    with socket.create_connection((address, int(port)), PATIENCE) as s:
        print(s.recv(100).decode())


def names(address, port, count):
    s = listener(address, port, 64)
    for _ in range(int(count)):
        with s.accept()[0] as c:
            print(c.getpeername()[0], flush=True)


def from_(*ways):
    for to, port, by in (w.split(",") for w in ways):
        with socket.create_connection((to, int(port)), PATIENCE, (by, 0) if by else None) as s:
            assert s.recv(1) == b""
            assert not by or s.getsockname()[0] == by


def bound(*ways):
    conns = []
    for to, port, how, mine in (w.split(",") for w in ways):
        s = socket.socket()
        conns.append(s)
        s.settimeout(PATIENCE)
        if how == "reuse":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if how == "late":
            s.setsockopt(socket.IPPROTO_IP, 24, 1)
        try:
            s.bind(("", int(mine)))
            s.connect((to, int(port)))
            s.send(b"x")
            assert s.recv(1) == b"x"
            assert int(mine) in (0, s.getsockname()[1])
            print(s.getsockname()[1], flush=True)
        except OSError as e:
            print(errno.errorcode[e.errno], flush=True)
    sys.stdin.read()


def chosen(count):
    for _ in range(int(count)):
        with socket.socket() as s:
            s.bind(("", 0))
            print(s.getsockname()[1])


def sources(address, port, count):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.bind((address, int(port)))
        for _ in range(int(count)):
            data, source = s.recvfrom(65535)
            print(source[0], flush=True)
            s.sendto(data, source)


def pktinfo(device):
    info = socket.if_nametoindex(device).to_bytes(4, sys.byteorder) + bytes(8)
    return [(socket.IPPROTO_IP, 8, info)]


def bind_to(s, device):
    if not device.startswith("#"):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        return
    number = socket.if_nametoindex(device[1:])
    s.setsockopt(socket.SOL_SOCKET, SO_BINDTOIFINDEX, number)
    assert s.getsockopt(socket.SOL_SOCKET, SO_BINDTOIFINDEX) == number


def by(*ways):
    for to, port, device in (w.split(",") for w in ways):
        with socket.socket() as s, socket.socket(type=socket.SOCK_DGRAM) as u, socket.socket(type=socket.SOCK_DGRAM) as v:
            for each in (s, u):
                bind_to(each, device)
                each.settimeout(PATIENCE)
            s.connect((to, int(port)))
            assert s.recv(1) == b""
            v.settimeout(PATIENCE)
            u.sendto(b"by a device", (to, int(port)))
            v.sendmsg([b"by packet information"], pktinfo(device.lstrip("#")), 0, (to, int(port)))
            for each in (u, v):
                assert each.recvfrom(100)[1][0] == to


def by_listen(device, port, count):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        s.bind(("", int(port)))
        s.listen(10)
        for _ in range(int(count)):
            with s.accept()[0] as c:
                print(c.getsockname()[0], flush=True)


if __name__ == "__main__":
    name = sys.argv[1].replace("-", "_")
    globals().get(name, globals().get(name + "_"))(*sys.argv[2:])
