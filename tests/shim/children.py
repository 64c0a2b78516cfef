"""Servers of many processes, and their client, which holds all its connections at once:

    each PORT N        a child for each connection, as PostgreSQL and vsftpd have it; prints the children's numbers
    prefork PORT N     N children that accept on one listener, and serve a connection each, as Apache's prefork has it
    turns PORT N       N children that accept on one listener for ever, and answer one connection after the other with their number
    one PORT COUNT     COUNT connections, one after the other: prints as JSON how many each child had
    ask PORT N         N connections: prints as JSON how many were answered, then waits for a line of its input, asks all again,
                       and prints that; a connection that ended is not answered

A connection is answered with the bytes that it sent and the number of the process that has it."""

import collections
import ctypes
import json
import os
import resource
import signal
import socket
import sys

PROGRAM = ("/usr/bin/python3", os.path.abspath(__file__))
PATIENCE = 900


def serve(c):
    with c:
        while d := c.recv(100):
            c.sendall(d + b" %d\n" % os.getpid())


def listener(port, n):
    s = socket.socket()
    s.bind(("127.0.0.1", int(port)))
    s.listen(n)
    return s


def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)     # PR_SET_PDEATHSIG: a server that is killed leaves nobody
        work()
        os._exit(0)
    print(pid, flush=True)


def reap(n):
    for _ in range(n):
        os.wait()


def each(port, n):
    s = listener(port, int(n))
    for _ in range(int(n)):
        with s.accept()[0] as c:
            child(lambda: (s.close(), serve(c)))
    reap(int(n))


def prefork(port, n):
    s = listener(port, int(n))
    for _ in range(int(n)):
        child(lambda: serve(s.accept()[0]))
    reap(int(n))


def turns(port, n):
    s = listener(port, int(n))

    def work():
        while True:
            with s.accept()[0] as c:
                c.sendall(b"%d" % os.getpid())

    for _ in range(int(n)):
        child(work)
    reap(int(n))


def one(port, count):
    had = collections.Counter()
    for _ in range(int(count)):
        with socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE) as c:
            had[c.recv(100).decode()] += 1
            c.recv(1)
    print(json.dumps(had), flush=True)


def answer(c, text):
    try:
        c.sendall(text)
        return c.recv(100).startswith(text)
    except OSError:
        return False


def ask(port, n):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    all_of_them = [socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE) for _ in range(int(n))]
    for text in (b"first", b"second"):
        print(json.dumps(sum(answer(c, text) for c in all_of_them)), flush=True)
        if text == b"first":
            sys.stdin.readline()
    for c in all_of_them:
        c.close()


if __name__ == "__main__":
    signal.alarm(PATIENCE)
    {"each": each, "prefork": prefork, "turns": turns, "one": one, "ask": ask}[sys.argv[1]](*sys.argv[2:])
