#!/usr/bin/env python3
"""A process that gives up root leaves root's stack, over the shim: nothing of it stays mapped or open, and its listener serves on."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

BUILD, SOURCE = os.environ["UNET_BUILD"], os.environ["UNET_SOURCE"]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "tests"))
from ports import free_port  # noqa: E402

SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
LIMIT = 120                       # for what must come

# What is tried: a master that listens as root, and a worker that accepts as somebody else. argv: port, how.
PROGRAM = r"""
import ctypes, os, socket, struct, sys, threading, time

port, how = int(sys.argv[1]), sys.argv[2].split("+")
NOBODY = 65534

def give_up():
    if "caps" in how:
        header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
        none = ctypes.create_string_buffer(struct.pack("=6I", *[0] * 6))
        if ctypes.CDLL(None).capset(header, none) != 0:
            sys.exit("capset")
        return
    os.setgroups([])
    os.setgid(NOBODY)
    if "resuid" in how:
        os.setresuid(NOBODY, NOBODY, NOBODY)
    elif "number" in how:
        ctypes.CDLL(None).syscall(117, NOBODY, NOBODY, NOBODY)
    else:
        os.setuid(NOBODY)

def left():
    with open("/proc/self/maps") as maps:
        mapped = sum("unet-" in line and "unet-directory" not in line for line in maps)     # which anybody may read
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass
    return f"mapped {mapped} open {sum('unet-' in name for name in names)}"

def pair():
    l = socket.socket()
    l.bind(("127.0.0.1", 0))
    l.listen(1)
    s = socket.create_connection(l.getsockname())
    return s, l.accept()[0]

class Threads:
    # One reads what does not come yet, two talk without a pause, one does nothing of ours.
    def __init__(self):
        self.rounds, self.wrong, self.over = 0, 0, False
        self.quiet, self.talk = pair(), pair()
        self.all = [threading.Thread(target=t, daemon=True) for t in (self.reads, self.asks, self.answers, self.works)]
        for t in self.all:
            t.start()
        while self.rounds < 100:
            time.sleep(0.001)

    def reads(self):
        self.read = self.quiet[0].recv(10)

    def asks(self):
        while not self.over:
            want = str(self.rounds).encode()
            self.talk[0].sendall(want)
            self.wrong += self.talk[0].recv(100) != want
            self.rounds += 1
        self.talk[0].close()

    def answers(self):
        while data := self.talk[1].recv(100):
            self.talk[1].sendall(data)

    def works(self):
        while not self.over:
            time.sleep(0.0001)

    def go_on(self):
        before = self.rounds
        while self.rounds < before + 100:
            time.sleep(0.001)
        self.over = True
        self.quiet[1].sendall(b"read")
        for t in self.all:
            t.join()
        return f"threads {self.read} wrong {self.wrong}"

l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("127.0.0.1", port))
l.listen(16)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("127.0.0.1", port))
if "before" in how:
    give_up()
pid = os.fork()
if pid == 0:
    threads = Threads() if "threads" in how else None
    if "after" in how:
        give_up()
    if "temporarily" in how:
        os.seteuid(NOBODY)
        os.seteuid(0)
    print("worker", left(), flush=True)
    if threads:
        print(threads.go_on(), flush=True)
    c, _ = l.accept()
    c.sendall(b"worker")
    c.close()
    data, who = u.recvfrom(100)
    u.sendto(data, who)
    os._exit(0)
print("status", os.waitpid(pid, 0)[1], flush=True)
if "after" in how:                      # the master is as before
    t = socket.socket()
    t.bind(("127.0.0.1", 0))
    t.listen(1)
    s = socket.create_connection(t.getsockname())
    c, _ = t.accept()
    s.sendall(b"x")
    print("master", c.recv(1), flush=True)
"""
CLIENT = r"""
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
print(s.recv(100))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(60)
u.sendto(b"datagram", ("127.0.0.1", int(sys.argv[1])))
print(u.recv(100))
"""
TIMES = 20
AT_ONCE = f"""if True:
    import ctypes, os, socket, threading
    libc, l = ctypes.CDLL(None), socket.create_server(("127.0.0.1", 0))
    for _ in range({TIMES}):
        pid = os.fork()
        if pid == 0:
            results, ready = [], threading.Barrier(3)
            def give_up():
                ready.wait()
                results.append(libc.setuid(65534))
            threads = [threading.Thread(target=give_up) for _ in range(3)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            print(sum("unet-" in line and "directory" not in line for line in open("/proc/self/maps")), results, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
"""
LEFT = "worker mapped 0 open 0"


class Privilege(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be two users")
        self.port = free_port()
        self.env = dict(os.environ, LD_PRELOAD=SHIM, UNET_LOG="1", UNET_DOMAIN=f"privilege-{os.getpid()}",
                        UNET_LIBEXEC=os.path.join(BUILD, "unetd"))

    def run_it(self, how, **env):
        """What the master and the worker print, and what the shim says."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.port), how], stdout=out, stderr=err,
                                  env=dict(self.env, **env)) as server:
                try:
                    self.wait_for_worker(server, out)
                    client = subprocess.run([sys.executable, "-c", CLIENT, str(self.port)], env=self.env, capture_output=True, text=True,
                                            timeout=LIMIT, check=False)
                    server.wait(LIMIT)
                finally:
                    server.kill()
            out.seek(0)
            err.seek(0)
            said = out.read()
            log = err.read()
        self.assertEqual(client.stdout, "b'worker'\nb'datagram'\n", client.stderr + said + log)
        self.assertIn("status 0", said, log)
        return said, log

    def wait_for_worker(self, server, out):
        while "worker" not in os.pread(out.fileno(), 1000, 0).decode():
            if server.poll() is not None:
                self.fail("the server has ended")
            time.sleep(0.02)

    def test_a_worker_has_nothing_of_its_masters_stack(self):
        for how in ("after", "after+resuid", "after+number"):
            with self.subTest(how):
                said, log = self.run_it(how)
                self.assertIn(LEFT, said, log)
                self.assertIn("has given up its user", log)
                self.assertIn("master b'x'", said)

    def test_threads_stay_out_meanwhile_and_go_on(self):
        """One that sleeps in a call, some that make calls all the time, and one that makes none."""
        for how in ("after+threads", "after+threads+resuid"):
            with self.subTest(how):
                said, log = self.run_it(how)
                self.assertIn(LEFT, said, log)
                self.assertIn("threads b'read' wrong 0", said, log)
                self.assertIn("master b'x'", said)

    def test_several_threads_give_it_up_at_once(self):
        env = dict(self.env, LD_PRELOAD=SHIM)
        done = subprocess.run([sys.executable, "-c", AT_ONCE], env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual(done.stdout, "0 [0, 0, 0]\n" * TIMES, done.stderr)

    def test_who_gives_up_its_user_before_it_forks(self):
        said, log = self.run_it("before")
        self.assertIn(LEFT, said, log)

    def test_a_worker_with_fewer_capabilities(self):
        """A master that keeps them is none of its equals; where nobody has more there is nothing to leave."""
        said, log = self.run_it("after+caps")
        self.assertIn(LEFT, said, log)
        self.assertIn("has given up its user or capabilities", log)
        self.assertIn("master b'x'", said)
        said, log = self.run_it("before+caps")
        self.assertNotIn(LEFT, said, log)

    def test_who_can_become_root_again_has_left_nothing(self):
        said, log = self.run_it("temporarily")
        self.assertNotIn(LEFT, said, log)

    def test_a_stack_is_shared_across_users_where_that_is_asked_for(self):
        said, log = self.run_it("after", UNET_ACROSS_USERS="1")
        self.assertNotIn(LEFT, said, log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
