"""Servers whose listeners share a port (SO_REUSEPORT), and their client:

    one ADDRESS PORT N          one process has N listeners
    forked ADDRESS PORT N       it makes N, and N children serve one each and close the others; prints their numbers
    exec ADDRESS PORT N         it makes N, and becomes another image, which serves them
    datagrams ADDRESS PORT N    it has N sockets for datagrams, and answers
    ask ADDRESS PORT COUNT      so many connections, one after another: prints as JSON how many each listener had
    leave ADDRESS PORT          one connection, whose listener is to close; prints which that was
    http ADDRESS PORT COUNT     as ask, of a server that says who it is in answers to HTTP
    tell ADDRESS PORT COUNT     as ask, by a datagram from a socket each; those without an answer are at "lost"
    drop ADDRESS PORT           one datagram: the first of the server's sockets is to close

Each connection is told the number of the listener that took it, from 0 on, and for children the process's.
"""

import collections
import json
import os
import select
import signal
import socket
import sys

PATIENCE = 240
PROGRAM = ("/usr/bin/python3", os.path.abspath(__file__))
MANY = 400                              # connections, of which each listener has its share
NGINX = """daemon off; worker_processes 2; pid {dir}/pid; error_log stderr notice; user root;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
       scgi_temp_path {dir}/s; server {{ listen {address}:{port} reuseport; location / {{ return 200 "$pid\\n"; }} }} }}
"""


class Shares:
    """For tests: how many of MANY connections each had. By chance alone one run in 10^10 is outside."""

    def assert_spread(self, shares, n):
        self.assertEqual(sum(shares.values()), MANY, shares)
        self.assertEqual(len(shares), n, shares)
        self.assertGreaterEqual(min(shares.values()), MANY // n // 3, shares)

    def assert_each_counts(self, shares):
        """Of a program that has three, and one that has one; the first of each is 0."""
        self.assertEqual(sum(shares.values()), MANY, shares)
        self.assertEqual(len(shares), 3, shares)
        self.assertGreaterEqual(min(shares["1"], shares["2"]), MANY // 10, shares)
        self.assertGreaterEqual(shares["0"], MANY // 3, shares)
        self.assertLessEqual(shares["0"], MANY * 2 // 3, shares)


def listener(address, port, kind=socket.SOCK_STREAM):
    s = socket.socket(type=kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((address, int(port)))
    if kind == socket.SOCK_STREAM:
        s.listen(128)
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 1
    return s


def listeners(address, port, n):
    return [listener(address, port) for _ in range(int(n))]


def serve(named):
    """`named`: a name for each listener. One that is told so closes."""
    poll = select.epoll()
    by_number = {s.fileno(): s for s in named}
    for number, s in by_number.items():
        s.setblocking(False)
        poll.register(number, select.EPOLLIN)
    while by_number:
        for number, _ in poll.poll():
            s = by_number[number]
            try:
                c = s.accept()[0]
            except BlockingIOError:
                continue
            with c:
                c.settimeout(PATIENCE)
                leave = c.recv(1) == b"q"
                c.sendall(str(named[s]).encode())
            if leave:
                poll.unregister(s)
                del by_number[number]
                s.close()


def one(address, port, n):
    serve({s: i for i, s in enumerate(listeners(address, port, n))})
    signal.pause()


def forked(address, port, n):
    mine = listeners(address, port, n)
    pids = []
    for s in mine:
        pids.append(os.fork())
        if pids[-1] == 0:
            for other in mine:
                if other is not s:
                    other.close()
            serve({s: os.getpid()})
            os._exit(0)
    for s in mine:
        s.close()
    print(*pids, flush=True)
    signal.pause()


def exec_(address, port, n):
    mine = listeners(address, port, n)
    for s in mine:
        s.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, __file__, "inherited", *(str(s.fileno()) for s in mine)])


def inherited(*numbers):
    serve({socket.socket(fileno=int(number)): i for i, number in enumerate(numbers)})


def datagrams(address, port, n):
    mine = {listener(address, port, socket.SOCK_DGRAM): i for i in range(int(n))}
    while mine:
        for s in select.select(list(mine), [], [])[0]:
            data, peer = s.recvfrom(100)
            s.sendto(str(mine[s]).encode(), peer)
            if data == b"q":
                next(iter(mine)).close()
                del mine[next(iter(mine))]
                break


def exchange(address, port, data, patience):
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.settimeout(patience)
        s.sendto(data, (address, int(port)))
        try:
            return s.recv(100).decode()
        except TimeoutError:
            return "lost"


def tell(address, port, count):
    print(json.dumps(collections.Counter(exchange(address, port, b"?", 5) for _ in range(int(count)))))


def drop(address, port):
    print(exchange(address, port, b"q", PATIENCE))


def connection(address, port):
    s = socket.create_connection((address, int(port)), PATIENCE)
    s.settimeout(PATIENCE)
    return s


def answer(address, port, question):
    with connection(address, port) as s:
        s.sendall(question)
        return b"".join(iter(lambda: s.recv(4096), b"")).decode().split()[-1]


def ask(address, port, count, question=b"?"):
    print(json.dumps(collections.Counter(answer(address, port, question) for _ in range(int(count)))))


def leave(address, port):
    print(answer(address, port, b"q"))


def http(address, port, count):
    ask(address, port, count, b"GET / HTTP/1.0\r\n\r\n")


if __name__ == "__main__":
    globals().get(sys.argv[1], globals().get(sys.argv[1] + "_"))(*sys.argv[2:])
