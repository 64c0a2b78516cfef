#!/usr/bin/env python3
"""Connections that a process has when it gives up root: a relay carries them, and nothing of root's stack stays with the process."""

import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ["UNET_BUILD"]

SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
SOON = os.path.join(BUILD, "tests", "users", "libunet_preload_soon.so")     # its relay waits for three seconds, not for two minutes
LIMIT = 120                       # for what must come

COMMON = r"""
import ctypes, os, select, signal, socket, struct, sys, threading, time, traceback

NOBODY = 65534
libc = ctypes.CDLL(None, use_errno=True)

def give_up(how="uid"):
    os.setgroups([])
    os.setgid(NOBODY)
    {"uid": lambda: os.setuid(NOBODY), "reuid": lambda: os.setreuid(NOBODY, NOBODY),
     "resuid": lambda: os.setresuid(NOBODY, NOBODY, NOBODY), "number": lambda: libc.syscall(117, NOBODY, NOBODY, NOBODY),
     "effective": lambda: (os.seteuid(NOBODY), os.setresuid(NOBODY, NOBODY, NOBODY))}[how]()
    assert os.getresuid() == (NOBODY,) * 3

def segments():
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "unet-" in line and "unet-directory" not in line:
                found.append([int(x, 16) for x in line.split()[0].split("-")] + line.split()[1:2])
    return found

def names():
    v = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            v.append(os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass
    return [x for x in v if "unet-" in x]

def clean():
    assert segments() == [] and names() == [], (segments(), names())

def all_of(s, n):
    data = b""
    while len(data) < n:
        piece = s.recv(min(n - len(data), 65536))
        assert piece, (len(data), n)
        data += piece
    return data

def to_end(s):
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data

def pair():
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind(("127.0.0.1", 0))
    l.listen(5)
    s = socket.create_connection(l.getsockname())
    c, _ = l.accept()
    l.close()
    return s, c

def child(do):
    pid = os.fork()
    if pid == 0:
        try:
            do()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid

def well(pid):
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status
"""

RELAYS = r"""
def relays():
    v = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/environ") as env:
                if comm.read() == "unet-relay\n" and "UNET_DOMAIN=" + os.environ["UNET_DOMAIN"] + "\0" in env.read():
                    v.append(int(pid))
        except (OSError, UnicodeDecodeError):
            pass
    return v
"""


class Relay(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        self.env = dict(os.environ, LD_PRELOAD=SHIM, UNET_LOG="1", UNET_DOMAIN=f"relay-{os.getpid()}",
                        UNET_LIBEXEC=os.path.join(BUILD, "unetd"))

    def run_it(self, text, *args, **env):
        """A program of Python's; what the shim says of its sockets."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            os.chmod(program.name, 0o644)
            program.write(COMMON + text)
            program.flush()
            p = subprocess.run([sys.executable, program.name, *args], env=dict(self.env, **env), stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual((p.returncode, p.stdout), (0, "good\n"), p.stderr)
        return p.stderr

    def test_both_ways_and_names(self):
        """All ways to give up the user; the peer stays on the fabric."""
        for how in ("uid", "reuid", "resuid", "number", "effective"):
            with self.subTest(how):
                log = self.run_it(r"""
s, c = pair()
wanted = c.getsockname(), c.getpeername()
def do():
    s.close()
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    d = c.dup()
    give_up(sys.argv[1])
    clean()
    assert (c.getsockname(), c.getpeername()) == wanted == (d.getsockname(), d.getpeername())
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
    assert c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
    c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert all_of(c, 5) == b"there"
    d.sendall(b"and back")
    c.close()
    assert to_end(d) == b"more"
    d.sendall(b"last")
pid = child(do)
c.close()
s.sendall(b"there")
assert all_of(s, 8) == b"and back"
s.sendall(b"more")
s.shutdown(socket.SHUT_WR)
assert to_end(s) == b"last"
well(pid)
print("good")
""", how)
                self.assertIn("a relay carries it", log)

    def test_much_at_once(self):
        """Both ways, with readers that are slow, and half closes; the process does not wait in between."""
        self.run_it(r"""
N = 8 << 20
data = [os.urandom(N) for _ in range(2)]
s, c = pair()
def both(k, mine, other):
    got = []
    k.setblocking(False)
    at = 0
    while at < N or len(got) == 0:
        r, w, _ = select.select([k] if not got else [], [k] if at < N else [], [])
        if w:
            try:
                at += k.send(mine[at:at + 300000])
            except BlockingIOError:
                pass
            if at >= N:
                k.shutdown(socket.SHUT_WR)
        if r:
            try:
                piece = k.recv(50000)
            except BlockingIOError:
                continue
            if not piece:
                got.append(b"".join(pieces))
            pieces.append(piece)
    assert got[0] == other, (len(got[0]), N)
pieces = []
def do():
    s.close()
    give_up()
    both(c, data[0], data[1])
pid = child(do)
c.close()
both(s, data[1], data[0])
well(pid)
print("good")
""")

    def test_many(self):
        """Several connections at once, polled by epoll; they end one by one."""
        self.run_it(r"""
pairs = [pair() for _ in range(20)]
def do():
    e = select.epoll()
    for s, c in pairs:
        s.close()
        e.register(c, select.EPOLLIN)
    give_up()
    clean()
    mine = {c.fileno(): c for _, c in pairs}
    while mine:
        for fd, _ in e.poll():
            data = mine[fd].recv(100)
            if data:
                mine[fd].sendall(data.upper())
            else:
                mine.pop(fd).close()
pid = child(do)
for i, (s, c) in enumerate(pairs):
    c.close()
for i, (s, c) in enumerate(pairs):
    s.sendall(b"number %d" % i)
for i, (s, c) in enumerate(pairs):
    assert s.recv(100) == b"NUMBER %d" % i
    s.shutdown(socket.SHUT_WR)
    assert to_end(s) == b""
well(pid)
print("good")
""")

    def test_a_reset_is_told(self):
        self.run_it(r"""
s, c = pair()
s2, c2 = pair()
r, w = os.pipe()
def do():
    s.close(); s2.close(); os.close(r)
    give_up()
    os.write(w, b"x")
    try:
        c.recv(1)
        raise SystemExit("no error")
    except ConnectionResetError:
        pass
    c2.close()                              # with something unread
pid = child(do)
c.close(); c2.close()
os.read(r, 1)
s2.sendall(b"unread")
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.close()
well(pid)
try:
    s2.recv(1)
    raise SystemExit("no error")
except ConnectionResetError:
    pass
print("good")
""")

    def test_who_shares_it_goes_on(self):
        """As sshd: a child without rights talks first, ends with things unread, and who has rights goes on where it was; over and over,
        byte by byte in order."""
        self.run_it(r"""
s, c = pair()
def peer():
    c.close()
    sent = 0
    for i in range(60):
        for _ in range(3):
            s.sendall(b"%08d" % sent)
            sent += 1
        if i % 3 == 0:
            continue
        s.recv(1, socket.MSG_PEEK)
    s.shutdown(socket.SHUT_WR)
    heard = to_end(s)
    want = b"".join(b"%04d" % k for k in range(len(heard) // 4))
    assert heard == want, (heard, want)
    assert len(want) == 4 * 180, len(want)
peer = child(peer)
s.close()
said = heard = 0
def some(n):
    global said, heard
    for _ in range(n):
        assert all_of(c, 8) == b"%08d" % heard
        heard += 1
        c.sendall(b"%04d" % said)
        said += 1
def unprivileged(n):
    def do():
        give_up()
        some(n)
    global said, heard
    well(child(do))
    said += n
    heard += n
for i in range(30):
    unprivileged(3)
    some(3)
assert c.recv(1) == b""
c.close()
well(peer)
print("good")
""")

    def test_what_comes_as_it_ends_is_for_the_others(self):
        """It has both ends, and so what it says last comes to it as well, as it ends."""
        self.run_it(r"""
s, c = pair()
for i in range(60):
    def says():
        give_up()
        s.sendall(b"%04d" % i)
    well(child(says))
    assert all_of(c, 4) == b"%04d" % i
print("good")
""")

    def test_it_closes_and_another_has_it(self):
        """What the child closes is open for who shares it; what it shuts down is shut."""
        self.run_it(r"""
for both in (False, True):
    s, c = pair()
    def do():
        s.close()
        give_up()
        if both:
            c.shutdown(socket.SHUT_RDWR)
        c.close()
    well(child(do))
    s.sendall(b"x")
    if both:
        assert to_end(s) == b""
    else:
        c.sendall(b"still there")
        assert all_of(s, 11) == b"still there"
    c.close()
    s.close()
print("good")
""")

    def test_the_relay_is_nobodys_child_and_ends(self):
        """Who waits for its children does not meet the relay, which holds nothing open of the program's and goes when it is done."""
        self.run_it(RELAYS + r"""
before = relays()                           # of other tests, which may not have ended yet
s, c = pair()
r, w = os.pipe()
def do():
    s.close()
    signal.signal(signal.SIGCHLD, lambda *_: os._exit(3))
    give_up()
    c.recv(1)
    try:
        os.wait()
        raise SystemExit("a child")
    except ChildProcessError:
        pass
    os.close(w)
    c.recv(1)
pid = child(do)
os.close(w)
c.close()
s.sendall(b"x")
assert os.read(r, 1) == b""                 # the relay has no copy
found = [pid for pid in relays() if pid not in before]
assert len(found) == 1, found
assert os.stat(f"/proc/{found[0]}").st_uid == 0
s.sendall(b"x")
well(pid)
assert to_end(s) == b""
while found[0] in relays():
    pass
print("good")
""")

    def test_the_relay_waits_for_no_peer_when_its_program_is_gone(self):
        """What the program has written is the connection's then, and comes to a peer that reads late."""
        self.run_it(RELAYS + r"""
P = bytes(range(251)) * 5
before = relays()
s, c = pair()
r, w = os.pipe()
def do():
    s.close()
    give_up()
    c.setblocking(False)
    at = idle = 0
    while idle < 20:                        # all takes what it can, the relay too
        try:
            at += c.send(P[at % 251:][:1000])
            idle = 0
        except BlockingIOError:
            idle += 1
            select.select([], [], [], 0.1)
    os.write(w, struct.pack("q", at))
pid = child(do)
c.close()
total, = struct.unpack("q", os.read(r, 8))
well(pid)
end = time.monotonic() + 60
while [pid for pid in relays() if pid not in before]:
    assert time.monotonic() < end, "the relay waits for the peer"
    time.sleep(0.01)
got = to_end(s)
assert len(got) == total, (len(got), total)
assert got == (bytes(range(251)) * (total // 251 + 1))[:total]
print("good")
""")

    def test_where_there_are_no_frames_the_relay_has_a_timer(self):
        """Another connection of the stack has all of them, so what the program has left cannot become the connection's."""
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
            config.write("[memory]\nlarge_frames = 64\nsmall_frames = 256\n")
            config.flush()
            self.run_it(RELAYS + r"""
before = relays()
s, c = pair()
s2, c2 = pair()
r, w = os.pipe()
def fill(k, force):
    if force:
        k.setsockopt(socket.SOL_SOCKET, 32, 1 << 28)                   # SO_SNDBUFFORCE
    k.setblocking(False)
    idle = 0
    while idle < 10:
        try:
            k.send(b"x" * 1000)
            idle = 0
        except BlockingIOError:
            idle += 1
            select.select([], [], [], 0.1)
def do():
    for k in s, s2, c2:
        k.close()
    give_up()
    assert os.read(r, 1) == b"x"
    fill(c, False)
pid = child(do)
c.close()
fill(c2, True)
os.write(w, b"x")
well(pid)
end = time.monotonic() + 60
while [pid for pid in relays() if pid not in before]:
    assert time.monotonic() < end, "the relay waits for the peer"
    time.sleep(0.01)
print("good")
""", LD_PRELOAD=SOON, UNET_CONFIG=config.name)

    def test_who_waits_in_a_listener_is_handed_on(self):
        """The child that gives up root accepts who has connected before, over the fabric, and who does meanwhile; what they have sent
        is as it was, and their address. The listener stays with the parent, which accepts nobody."""
        log = self.run_it(r"""
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen(128)
to = l.getsockname()
N = 40
r, w = os.pipe()
def serve():
    for s in early:
        s.close()
    give_up()
    clean()
    os.write(w, b"x")
    served = []
    def answer(c):
        c.sendall(all_of(c, 100))
        assert to_end(c) == b"more" * 10000
        c.close()
        served.append(c)
    threads = []
    for _ in range(2 * N):                  # in any order
        c, name = l.accept()
        assert name == c.getpeername() and name[0] == "127.0.0.1", name
        threads.append(threading.Thread(target=answer, args=(c,)))
        threads[-1].start()
    for t in threads:
        t.join()
    assert len(served) == 2 * N
def talk(s):
    s.sendall(b"%0100d" % s.getsockname()[1])
early = [socket.create_connection(to) for _ in range(N)]
for s in early:
    talk(s)
pid = child(serve)
late = [socket.create_connection(to) for _ in range(N)]
for s in late:
    talk(s)
for s in early + late:
    assert int(all_of(s, 100)) == s.getsockname()[1]
    s.sendall(b"more" * 10000)
    s.shutdown(socket.SHUT_WR)
    assert to_end(s) == b""
well(pid)
print("good")
""")
        self.assertGreaterEqual(log.count("ours: the peer is on the fabric"), 40, log)
        self.assertIn("tcp: kernel: the process has given up its user", log)

    def test_a_worker_scribbles_over_all_that_it_can_reach(self):
        """The attack: every segment that is mapped, and every descriptor that can be; the master lives, and serves."""
        for holds in ("connection", "listener", "threads"):
            with self.subTest(holds):
                self.run_it(r"""
holds = sys.argv[1]
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen(16)
s = c = None
if holds != "listener":
    s = socket.create_connection(l.getsockname())
    c, _ = l.accept()
if holds == "threads":                      # that have ended
    t = threading.Thread(target=lambda: None)
    t.start()
    t.join()
r, w = os.pipe()
def do():
    import mmap, random
    give_up()
    for lo, hi, rights in segments():
        if "w" in rights:
            for _ in range(200000):
                ctypes.c_uint8.from_address(lo + random.randrange(min(hi - lo, 8 << 20))).value = random.randrange(256)
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if "unet-" in os.readlink(f"/proc/self/fd/{fd}"):
                m = mmap.mmap(fd, 1 << 20)
                m[:] = os.urandom(1 << 20)
        except (OSError, ValueError):
            pass
    os.write(w, b"x")
    signal.pause()
pid = child(do)
os.read(r, 1)
for _ in range(50):
    t = socket.socket()
    t.bind(("127.0.0.1", 0))
    t.listen(4)
    a = socket.create_connection(t.getsockname())
    b, _ = t.accept()
    a.sendall(b"x" * 5000)
    assert all_of(b, 5000) == b"x" * 5000
    for k in (a, b, t):
        k.close()
if c:
    s.sendall(b"whole")
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
if c:
    assert all_of(c, 5) == b"whole"         # the child had not read it
print("good")
""", holds)


if __name__ == "__main__":
    unittest.main(verbosity=2)
