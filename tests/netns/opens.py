#!/usr/bin/env python3
"""Connections that are opened, one byte each way, and closed again.

    serve ADDRESS PORT              the byte that comes says what is done before it goes back:
                                      e  nothing; the client closes first
                                      f  nothing; the server closes first, and waits for nobody
                                      b  the listener's receive buffer gets another size, and with it its window scale
                                      c  the listener is closed, for good
                                      s  nobody accepts for two seconds
    open ADDRESS PORT BYTES [MINE]  a connection for each, one after the other, from the port MINE; prints a line each: "ok", or
                                    what went wrong
    crowd ADDRESS PORT COUNT        so many at once, that all get an f back
    hold ADDRESS PORT MINE          one from the port MINE, which stays open; prints "open" """

import errno
import select
import socket
import struct
import sys
import time

PATIENCE = 120


def serve(address, port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, int(port)))
    listener.listen(2)
    size = 1 << 20
    while True:
        s = listener.accept()[0]
        try:
            what = s.recv(1)
        except ConnectionResetError:
            continue
        if what == b"b":
            size ^= 1 << 25
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        elif what == b"c":
            listener.close()
        s.sendall(what)
        if what == b"s":
            time.sleep(2)
        if what != b"f":
            s.recv(1)
        s.close()
        if what == b"c":
            time.sleep(PATIENCE)


def one(address, port, what, mine):
    s = socket.socket()
    s.settimeout(PATIENCE)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("", mine))
        s.connect((address, int(port)))
        s.sendall(what)
        back = s.recv(1)
        if what == b"f" and back and s.recv(1):
            return "more than one byte"
        return "ok" if back == what else f"{back} came back"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
    finally:
        s.close()


def opens(address, port, commands, mine="0"):
    for what in commands.encode():
        how = one(address, port, bytes([what]), int(mine))
        while mine != "0" and how == "EADDRNOTAVAIL":   # our own end waits for the last ACK of the one before
            time.sleep(0.01)
            how = one(address, port, bytes([what]), int(mine))
        print(how, flush=True)


def crowd(address, port, count):
    socks = []
    for _ in range(int(count)):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((address, int(port)))
        socks.append(s)
    for s in socks:
        if not select.select([], [s], [], PATIENCE)[1]:
            sys.exit("not connected")
        s.sendall(b"f")
    for s in socks:
        s.settimeout(PATIENCE)
        if s.recv(1) != b"f":
            sys.exit("no answer")
        s.close()
    print("all")


def hold(address, port, mine):
    s = socket.create_connection((address, int(port)), PATIENCE, ("", int(mine)))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    print("open", flush=True)
    time.sleep(PATIENCE)


if __name__ == "__main__":
    {"serve": serve, "open": opens, "crowd": crowd, "hold": hold}[sys.argv[1]](*sys.argv[2:])
