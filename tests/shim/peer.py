"""Servers and clients for shim_test.py. Each pair is one name; the client checks and the exit status tells."""

import asyncio
import contextlib
import hashlib
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from daemons import daemons  # noqa: E402

HOST = "127.0.0.1"
PATIENCE = 60


def listen(port, family=socket.AF_INET, host=HOST):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, port))
    s.listen(64)
    return s


def read_all(s):
    digest, n = hashlib.sha256(), 0
    while True:
        data = s.recv(random.choice((1, 100, 4096, 1 << 16, 1 << 20)))
        if not data:
            return digest.hexdigest(), n
        digest.update(data)
        n += len(data)


def send_stream(s, seed, total):
    """`total` bytes in pieces of every size, then the end; returns their digest."""
    rnd, digest, left = random.Random(seed), hashlib.sha256(), total
    block = rnd.randbytes(1 << 20)
    while left:
        n = min(left, rnd.choice((1, 7, 1448, 4096, 65536, 1 << 20)))
        at = rnd.randrange(len(block) - n + 1)
        piece = memoryview(block)[at:at + n]
        s.sendall(piece)
        digest.update(piece)
        left -= n
    s.shutdown(socket.SHUT_WR)
    return digest.hexdigest()


# Data both ways at once, each side closing its half when it has sent; then the digests are compared.
HALF = 64 << 20


def exchange(s, seed, total=HALF):
    sent = []
    t = threading.Thread(target=lambda: sent.append(send_stream(s, seed, total)))
    t.start()
    got, n = read_all(s)
    t.join()
    assert n == total, n
    return sent[0], got


def expected(seed):
    rnd, digest, left = random.Random(seed), hashlib.sha256(), HALF
    block = rnd.randbytes(1 << 20)
    while left:
        n = min(left, rnd.choice((1, 7, 1448, 4096, 65536, 1 << 20)))
        at = rnd.randrange(len(block) - n + 1)
        digest.update(block[at:at + n])
        left -= n
    return digest.hexdigest()


def server_half_close(port, seed):
    s, _ = listen(port).accept()
    assert exchange(s, int(seed) + 1)[1] == expected(int(seed))


def client_half_close(port, seed):
    s = socket.create_connection((HOST, port))
    assert exchange(s, int(seed))[1] == expected(int(seed) + 1)


# The same, of any size: who started us compares the digests.
def server_half_close_of(port, seed, total):
    s, _ = listen(port).accept()
    print(*exchange(s, int(seed), int(total)), flush=True)


def client_half_close_of(port, seed, total):
    s = socket.create_connection((HOST, port))
    print(*exchange(s, int(seed) + 1, int(total)), flush=True)


# What was sent arrives although the sender is gone, one way or another; then the end, or a reset.
LAST = 3 << 20


def server_resets(port, n):
    with listen(port) as listener:
        for _ in range(int(n)):
            s, _ = listener.accept()
            s.sendall(b"full")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()


def client_resets(port, n):
    """Who waits in connect() is told that there is a connection, and reads what came before the reset."""
    for _ in range(int(n)):
        with socket.socket() as s:
            s.connect((HOST, port))
            assert s.recv(10, socket.MSG_WAITALL) == b"full"


def server_gone(port, n):
    listener = listen(port)
    for _ in range(int(n)):
        s, _ = listener.accept()
        want, got = int(s.recv(8, socket.MSG_WAITALL)), 0
        try:
            while data := s.recv(1 << 16):
                got += len(data)
        except ConnectionResetError:
            pass
        assert got == want, (got, want)
        s.close()


def client_gone(port, n):
    for i in range(int(n)):
        if os.fork() == 0:
            s = socket.create_connection((HOST, port))
            size = random.choice((0, 1, 1000, 100000, LAST))
            s.sendall(b"%8d" % size + bytes(size))
            if i % 3 == 0:
                os._exit(0)
            elif i % 3 == 1:
                sys.exit(0)
            os.kill(os.getpid(), 9)
        os.wait()


# Threads that write, poll and are created and gone while others open and close connections.
def server_churn(port, n):
    listener, threads = listen(port), []
    for _ in range(4 * int(n)):
        t = threading.Thread(target=echo, args=(listener.accept()[0],))
        t.start()
        threads.append(t)
    for t in threads:
        t.join()


def client_churn(port, n):
    def one():
        for _ in range(int(n)):
            ask(port=port, size=random.choice((1, 1000, 100000)))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


# A child made by subprocess serves the connection it inherits as its standard input and output.
def server_inetd(port, n):
    listener = listen(port)
    for _ in range(int(n)):
        s, _ = listener.accept()
        subprocess.run(["/bin/cat"], stdin=s, stdout=s, check=True)
        s.close()


def client_inetd(port, n):
    for _ in range(int(n)):
        ask(port=port, size=10000)


# Connections are passed to another process, which did not make them.
def server_passing(port, n):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        a.close()
        for _ in range(int(n)):
            _, fds, _, _ = socket.recv_fds(b, 1, 1)
            echo(socket.socket(fileno=fds[0]))
        os._exit(0)
    b.close()
    listener, kept = listen(port), []
    for _ in range(int(n)):
        s, _ = listener.accept()
        socket.send_fds(a, [b"x"], [s.fileno()])
        kept.append(s)
    # Until the other end has taken them, somebody must hold them.
    assert os.wait()[1] == 0


def client_passing(port, n):
    threads = [threading.Thread(target=ask, kwargs={"port": port}) for _ in range(int(n))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


# A signal every millisecond, in the middle of everything.
def alarms(seed):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, random.Random(seed).random() < 0.5)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)


def server_alarms(port, seed):
    s, _ = listen(port).accept()
    alarms(int(seed))
    got, n = read_all(s)
    assert n == HALF and got == expected(int(seed))
    assert send_stream(s, int(seed) + 1, HALF)
    signal.setitimer(signal.ITIMER_REAL, 0)


def client_alarms(port, seed):
    s = socket.create_connection((HOST, port))
    alarms(int(seed) + 1)
    send_stream(s, int(seed), HALF)
    assert read_all(s)[0] == expected(int(seed) + 1)
    signal.setitimer(signal.ITIMER_REAL, 0)


# Non-blocking writes of 1 byte to 1 MB; poll() when there is no room.
ODD = 128 << 20


def server_odd_sizes(port, seed, total=ODD):
    s, _ = listen(port).accept()
    digest, n = read_all(s)
    assert n == int(total), n
    s.sendall(digest.encode())


def client_odd_sizes(port, seed, total=ODD):
    s = socket.create_connection((HOST, port))
    s.setblocking(False)
    rnd, digest, left = random.Random(int(seed)), hashlib.sha256(), int(total)
    block = memoryview(rnd.randbytes(1 << 20))
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    while left:
        data = block[:min(left, int(2 ** rnd.uniform(0, 20)))]
        try:
            n = s.send(data)
        except BlockingIOError:
            poll.poll()
            continue
        digest.update(data[:n])
        left -= n
    s.setblocking(True)
    s.shutdown(socket.SHUT_WR)
    assert read_all_text(s) == digest.hexdigest()


def read_all_text(s):
    text = b""
    while True:
        data = s.recv(4096)
        if not data:
            return text.decode()
        text += data


# asyncio's loop: epoll on this system. The server ends when it has served n clients.
def server_event_loop(port, n):
    async def main():
        done, count = asyncio.Event(), 0

        async def serve(reader, writer):
            nonlocal count
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            count += 1
            if count == int(n):
                done.set()

        server = await asyncio.start_server(serve, HOST, port)
        await done.wait()
        server.close()

    asyncio.run(main())


def client_event_loop(port, n):
    async def one(i):
        reader, writer = await asyncio.open_connection(HOST, port)
        data = random.Random(i).randbytes(20000 + i)
        for at in range(0, len(data), 3333):
            writer.write(data[at:at + 3333])
            await writer.drain()
        writer.write_eof()
        assert await reader.read() == data
        writer.close()

    async def main():
        await asyncio.gather(*(one(i) for i in range(int(n))))

    asyncio.run(main())


# Nothing is said.
def server_idle(port):
    s, _ = listen(port).accept()
    try:
        assert s.recv(1) == b""
    except ConnectionResetError:
        pass


def client_idle(port):
    socket.create_connection((HOST, port)).recv(1)


def echo(s):
    while data := s.recv(65536):
        s.sendall(data)
    s.close()


def ask(family=socket.AF_INET, host=HOST, port=0, size=100000):
    s = socket.socket(family)
    s.connect((host, port))
    data = random.randbytes(size)
    t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
    t.start()
    got = b""
    while piece := s.recv(65536):
        got += piece
    t.join()
    assert got == data


def server_threads(port, n):
    listener, threads = listen(port), []
    for _ in range(int(n)):
        t = threading.Thread(target=echo, args=(listener.accept()[0],))
        t.start()
        threads.append(t)
    for t in threads:
        t.join()


def in_threads(n, *args, **more):
    failed = []

    def one():
        try:
            ask(*args, **more)
        except BaseException as e:
            failed.append(e)
            raise

    threads = [threading.Thread(target=one) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def client_threads(port, n):
    in_threads(int(n), port=port, size=2000000)


def client_staying(port):
    """Says when it was answered, and leaves when its standard input ends."""
    s = socket.create_connection((HOST, port))
    s.sendall(bytes(50000))
    n = 0
    while n < 50000:
        n += len(s.recv(65536))
    print("echoed", flush=True)
    sys.stdin.read()


def client_of_itself(port):
    listener = listen(port)
    c = socket.create_connection((HOST, port))
    s, _ = listener.accept()
    c.sendall(bytes(50000))
    c.close()
    assert read_all(s)[1] == 50000


def server_forking(port, n):
    listener = listen(port)
    for _ in range(int(n)):
        s, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            echo(s)
            os._exit(0)
        s.close()
    for _ in range(int(n)):
        assert os.wait()[1] == 0


def client_forking(port, n):
    for _ in range(int(n)):
        ask(port=port)


def server_prefork(port, n):
    listener = listen(port)
    for _ in range(4):
        if os.fork() == 0:
            for _ in range(int(n) // 4):
                echo(listener.accept()[0])
            os._exit(0)
    for _ in range(4):
        assert os.wait()[1] == 0


def client_prefork(port, n):
    for _ in range(4):
        in_threads(int(n) // 4, port=port)


def server_dual(port, n):
    listener = listen(port, socket.AF_INET6, "::")
    for _ in range(int(n)):
        s, peer = listener.accept()
        assert s.family == socket.AF_INET6
        assert peer[0] in ("::ffff:127.0.0.1", "::1"), peer
        echo(s)


def client_dual(port, n):
    for i in range(int(n)):
        host = ("127.0.0.1", "::ffff:127.0.0.1", "::1", "localhost")[i % 4]
        family = socket.AF_INET if i % 4 in (0, 3) else socket.AF_INET6
        ask(family, host, port)


def server_slow(port):
    """Reads all there is twenty times a second, and sends questions back, until it is stopped."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.bind((HOST, port))
    s.setblocking(False)
    while True:
        time.sleep(0.05)
        with contextlib.suppress(BlockingIOError):
            while True:
                data, peer = s.recvfrom(65536)
                if len(data) == 1:
                    s.sendto(data, peer)


def ask_datagram(s, what):
    answer = b""
    while answer != what:
        with contextlib.suppress(ConnectionRefusedError):       # it is not there yet
            s.send(what)
            if select.select([s], [], [], 0.1)[0]:
                answer = s.recv(10)


def client_slow(port):
    """A datagram socket that could not send has an edge when it can, as event loops rely on."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.connect((HOST, port))
    ask_datagram(s, b"?")
    s.setblocking(False)
    edges = select.epoll()
    edges.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    assert edges.poll(PATIENCE)
    for _ in range(30000):
        while True:
            try:
                s.send(bytes(32768))
                break
            except BlockingIOError:
                assert edges.poll(PATIENCE), "no edge"
    s.setblocking(True)
    ask_datagram(s, b"!")


def server_stops(port):
    """Says who it is, and reads what else comes, until it is stopped."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.bind((HOST, port))
    while True:
        data, peer = s.recvfrom(65536)
        if len(data) == 1:
            s.sendto(str(os.getpid()).encode(), peer)


def until_full(s):
    with contextlib.suppress(BlockingIOError):
        for _ in range(100000):
            s.send(bytes(1000))
        raise AssertionError("it is never full")


def waits_for_room(s):
    """The ways to wait until a socket can send again, each with a name: what they say after so many seconds."""
    level, polled = select.epoll(), select.poll()
    level.register(s, select.EPOLLOUT)
    polled.register(s, select.POLLOUT)
    yield "epoll_wait", level.poll
    yield "poll", lambda seconds: polled.poll(1000 * seconds)
    yield "select", lambda seconds: select.select([], [s], [], seconds)[1]


def client_stops(port):
    """Who waits for room to send a datagram sleeps while there is none, as long as it said; and is woken when there is."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.connect((HOST, port))
    s.send(b"?")
    pids = [int(s.recv(10)), *daemons("unet-keeper")]
    assert len(pids) > 1, "no keeper"
    s.setblocking(False)
    for name, wait in waits_for_room(s):
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            until_full(s)
            began, worked = time.monotonic(), time.thread_time()
            assert not wait(0.3), f"{name}: room"
            worked, took = time.thread_time() - worked, time.monotonic() - began
            assert worked <= took / 3, f"{name}: {took:.3f} s, {worked:.3f} s of a processor"
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        assert wait(PATIENCE), f"{name}: no room"
        s.send(b"!")


if __name__ == "__main__":
    role, what, number = sys.argv[1:4]
    globals()[f"{role}_{what}"](int(number), *sys.argv[4:])
