#!/usr/bin/env python3
"""Unmodified programs over the shim: they do what they do over the kernel, and their connections are ours."""

import difflib
import hashlib
import json
import os
import pwd
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD, SOURCE = os.environ["UNET_BUILD"], os.environ["UNET_SOURCE"]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "tests"))
from long_run import LONG, long_run  # noqa: E402
from ports import free_port  # noqa: E402
from waiting import LIMIT, wait_until  # noqa: E402

SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
UNET = os.path.join(BUILD, "tools", "unet")
CALLS = os.path.join(BUILD, "tests", "shim", "shim_calls")
WHOLE = 10 << 30                          # of a large transfer, with UNET_WHOLE=1; each way
PART = 2 << 30 if LONG else 256 << 20     # ... and without
INTERRUPTS = int(os.environ.get("UNET_INTERRUPTS", 10 if LONG else 4))
SEED = int(os.environ.get("UNET_SEED", random.randrange(1 << 31)))
LIVELY = 900                      # for what must end and is at work; on a busy machine it may take long

os.environ.setdefault("UNET_LIBEXEC", os.path.join(BUILD, "unetd"))
os.environ["UNET_DOMAIN"] = f"shim-{os.getpid()}"


def listens(port, kind="tcp"):
    for name in (kind, kind + "6"):
        with open(f"/proc/net/{name}", encoding="ascii") as rows:
            for row in rows.readlines()[1:]:
                field = row.split()
                if int(field[1].rsplit(":", 1)[1], 16) == port and field[3] in ("0A", "07"):
                    return True
    return False


def need(program):
    if not shutil.which(program):
        raise unittest.SkipTest(f"no {program} here")


class Running:
    """A program, over the shim or not; what it wrote, and what the shim said of its sockets."""

    def __init__(self, *argv, shim=True, stdin=subprocess.DEVNULL, env=None):
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        full = dict(os.environ, **(env or {}))
        if shim:
            full.update(LD_PRELOAD=SHIM, UNET_LOG="1")
        self.argv, self.shim = argv, shim
        self.child = subprocess.Popen(argv, stdin=stdin, stdout=self.files[0], stderr=self.files[1], env=full)

    def text(self, which=0):
        out = self.files[which].fileno()        # not by seek(): the program writes at the offset that it shares with us
        return os.pread(out, os.fstat(out).st_size, 0).decode(errors="replace")

    def shown(self):
        """The ends of what it wrote, fit for a log."""
        return "\n".join(re.sub(r"[^\t\n -~]", ".", self.text(which)[-3000:]) for which in range(2))

    def used(self):
        """Nanoseconds of processor time so far, of its first thread."""
        with open(f"/proc/{self.child.pid}/schedstat", encoding="ascii") as f:
            return int(f.read().split()[0])

    def ticks(self):
        """Its processor time, of all threads, and of children that have ended."""
        with open(f"/proc/{self.child.pid}/stat", encoding="ascii", errors="replace") as f:
            return sum(int(n) for n in f.read().rsplit(")", 1)[1].split()[11:15])

    def end(self, ok=(0,)):
        began = last = time.monotonic()
        ticks = 0
        while (status := self.child.poll()) is None:
            now = time.monotonic()
            if self.ticks() != ticks:
                ticks, last = self.ticks(), now
            if now - last > LIMIT or now - began > LIVELY:
                raise AssertionError(f"did not end in {now - began:.0f} s, for {now - last:.0f} of them idle: {self}")
            try:
                self.child.wait(0.5)
            except subprocess.TimeoutExpired:
                pass
        if ok is not None and status not in ok:
            raise AssertionError(f"{' '.join(self.argv)}: status {status}\n{self.shown()}")
        return self.text()

    def __str__(self):
        status = self.child.poll()
        return (f"{' '.join(self.argv)}{' over the shim' if self.shim else ''}: "
                f"{'still runs' if status is None else f'status {status}'}\n{self.shown()}")

    def said(self, what):
        return len(re.findall(r"^unet: pid \d+ fd -?\d+ \w+: " + what, self.text(1), re.M))

    def stop(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def forget(self):
        self.stop()
        for f in self.files:
            f.close()


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.port = free_port()
        self.programs = []

    def tearDown(self):
        if self.has_failed():
            self.report()
        for p in self.programs:
            p.forget()

    def has_failed(self):
        result = self._outcome.result       # from Python 3.11 on; before, what went wrong is in `errors`
        return (any(error for _, error in getattr(self._outcome, "errors", [])) or
                any(self.id() in test.id() for test, _ in result.failures + result.errors))

    def report(self):
        """What is needed to understand a failure where nobody can look."""
        print(f"\n--- {self.id()}, seed {SEED}, load {os.getloadavg()}", file=sys.stderr)
        for p in self.programs:
            print(p, file=sys.stderr)
        for verb in ("status", "ss"):
            said = subprocess.run([UNET, verb], capture_output=True, text=True, timeout=LIMIT, check=False)
            print(f"unet {verb}:\n{said.stdout}{said.stderr}", file=sys.stderr)

    def assert_same(self, ours, kernel):
        """Where they differ: the whole is long, and of a log often only the end is kept."""
        diff = list(difflib.unified_diff(kernel.splitlines(), ours.splitlines(), "over the kernel", "over the shim", lineterm="", n=2))
        if diff:
            self.fail("\n".join(diff[:100]))

    def run_it(self, *argv, **more):
        p = Running(*argv, **more)
        self.programs.append(p)
        return p

    def server(self, *argv, kind="tcp", **more):
        p = self.run_it(*argv, **more)
        wait_until(f"{argv[0]} listens", lambda: p.child.poll() is not None or (
            listens(self.port, kind) and (not p.shim or p.said("(both|kernel)"))))
        self.assertIsNone(p.child.poll(), p)
        return p


class Exports(unittest.TestCase):
    def test_the_hooked_symbols_and_no_others(self):
        with open(os.path.join(SOURCE, "sock", "shim", "hooks.def"), encoding="ascii") as f:
            wanted = set(re.findall(r"^HOOK\([^,]*, (\w+),", f.read(), re.M))
        table = subprocess.run(["nm", "-D", "--defined-only", SHIM], capture_output=True, check=True, text=True)
        self.assertEqual({row.split()[-1] for row in table.stdout.splitlines()}, wanted)

    def test_nothing_is_missing_from_the_library(self):
        table = subprocess.run(["ldd", "-r", SHIM], capture_output=True, check=True, text=True)
        self.assertNotIn("undefined symbol", table.stdout + table.stderr)


def scene_names():
    with open(os.path.join(SOURCE, "tests", "shim", "calls.c"), encoding="ascii") as f:
        return re.findall(r'^        \{"(\w+)", scene_', f.read(), re.M)


class Calls(Case):
    """tests/shim/calls.c: each scene prints the same over the kernel and over the shim."""


def make_scene(name):
    def test(self):
        kernel, ours = self.run_it(CALLS, name, shim=False), self.run_it(CALLS, name)       # at once: they wait, most of the time
        self.assert_same(ours.end(), kernel.end())
        self.assertGreater(ours.said("(ours|both)"), 0)
        for reason in re.findall("^skipped: .*", ours.text(1), re.M):
            print(f"{name}: {reason}", file=sys.stderr)
            self.skipTest(reason)

    return test


for scene in scene_names():
    setattr(Calls, f"test_{scene}", make_scene(scene))


# Binds a port that only root may, and is spoken to there.
BINDS = r"""
import os, socket, sys
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
kind = getattr(socket, "SOCK_" + sys.argv[1])
server, client = socket.socket(type=kind), socket.socket(type=kind)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", 811))
if kind == socket.SOCK_STREAM:
    server.listen()
client.connect(server.getsockname())
client.send(b"hello")
print(server.getsockname(), (server.accept()[0] if kind == socket.SOCK_STREAM else server).recv(10))
"""


class Beside(Case):
    """Libraries that are preloaded beside the shim."""

    def test_an_allocator_that_reads_a_file_as_it_starts(self):
        allocator = os.path.join(BUILD, "tests", "shim", "libshim_allocator.so")
        for name in ("exec", "fork", "threads"):
            with self.subTest(name):
                kernel = self.run_it(CALLS, name, shim=False).end()
                ours = self.run_it("env", f"LD_PRELOAD={allocator} {SHIM}", "UNET_LOG=1", CALLS, name, shim=False)
                self.assert_same(ours.end(), kernel)
                self.assertGreater(ours.said("(ours|both)"), 0)

    def test_a_clock_that_stands_still(self):
        clock = os.path.join(BUILD, "tests", "shim", "libshim_clock.so")
        for name in ("timeouts", "poll", "threads", "select_microseconds"):
            with self.subTest(name):
                kernel = self.run_it("env", f"LD_PRELOAD={clock}", CALLS, name, shim=False).end()
                ours = self.run_it("env", f"LD_PRELOAD={SHIM} {clock}", "UNET_LOG=1", CALLS, name, shim=False)
                self.assert_same(ours.end(), kernel)
                self.assertGreater(ours.said("(ours|both)"), 0)


    def test_a_library_that_finds_libcs_functions_by_its_handle(self):
        other = os.path.join(BUILD, "tests", "shim", "libshim_behind.so")
        for name in ("by_handle", "by_version", "read_write", "deep_bound"):
            kernel = self.run_it("env", f"LD_PRELOAD={other}", CALLS, name, shim=False).end()
            for order in (f"{SHIM} {other}", f"{other} {SHIM}"):
                with self.subTest(name, order=order):
                    ours = self.run_it("env", f"LD_PRELOAD={order}", "UNET_LOG=1", CALLS, name, shim=False)
                    self.assert_same(ours.end(), kernel)
                    self.assertGreater(ours.said("(ours|both)"), 0)

    def asker(self, order, *argv):
        other = os.path.join(BUILD, "tests", "shim", "libshim_asker.so")
        kernel = self.run_it("env", f"LD_PRELOAD={other}", *argv, shim=False).end()
        ours = self.run_it("env", "LD_PRELOAD=" + order.format(ours=SHIM, other=other), "UNET_LOG=1", *argv, shim=False)
        self.assert_same(ours.end(), kernel)
        self.assertGreater(ours.said("(ours|both)"), 0)

    def test_a_library_that_asks_about_files_by_a_connection(self):
        self.asker("{other} {ours}", CALLS, "exec")

    def test_a_library_that_binds_for_who_may_not(self):
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as f:
            if int(f.read()) <= 811:
                self.skipTest("anybody may bind all ports here")
        for kind in ("STREAM", "DGRAM"):
            for order in ("{ours} {other}", "{other} {ours}"):
                with self.subTest(kind, order=order):
                    self.asker(order, "/usr/bin/python3", "-c", BINDS, kind)

    def test_posix_aio_is_said_not_to_reach_a_connection(self):
        p = self.run_it(CALLS, "posix_aio")
        p.end()
        self.assertGreater(p.said("kernel: the program uses POSIX AIO"), 0)
        self.assertGreater(p.said("both: the program uses POSIX AIO, new connections are the kernel's"), 0)

    def test_a_second_libc_leaves_new_sockets_to_the_kernel(self):
        p = self.run_it(CALLS, "second_libc")
        p.end()
        self.assertGreater(p.said("ours"), 0)
        self.assertGreater(p.said("kernel: a second libc"), 0)


class Inert(Case):
    SCRIPT = "ls -l /proc/self/fd | wc -l; cat /proc/self/status | grep Threads; exec cat /proc/self/cmdline"

    def test_a_program_without_sockets_has_nothing_of_ours(self):
        env = {"UNET_DOMAIN": os.environ["UNET_DOMAIN"] + "-inert"}
        argv = ("sh", "-c", self.SCRIPT)
        self.assertEqual(self.run_it(*argv, env=env).end(), self.run_it(*argv, shim=False).end())
        names = subprocess.run(["cat", "/proc/net/unix"], capture_output=True, check=True).stdout
        self.assertNotIn(env["UNET_DOMAIN"].encode(), names)

    def test_disabled_everything_is_the_kernels(self):
        p = self.run_it(CALLS, "read_write", env={"UNET_DISABLE": "1"})
        p.end()
        self.assertEqual(p.said(".*"), 0)


class Without(Case):
    """No unetd, and none that can be started, or only one of another version, which has other names."""

    def test_everything_is_the_kernels(self):
        for i, (libexec, what) in enumerate((("/nonexistent", None), (None, "/bin/true"))):
            with self.subTest(what=what), tempfile.TemporaryDirectory() as made:
                if what:
                    os.symlink(what, os.path.join(made, "unetd"))
                p = self.run_it(CALLS, "read_write", env={"UNET_DOMAIN": os.environ["UNET_DOMAIN"] + f"-none{i}",
                                                          "UNET_LIBEXEC": libexec or made})
                self.assertEqual(p.end(), self.run_it(CALLS, "read_write", shim=False).end())
                self.assertGreater(p.said("kernel: no unetd"), 1, p)


class Spare(Case):
    """A connection over the fabric takes the kernel's socket of the one before, which has seen nothing of it."""

    SCRIPT = """if True:
        import os, socket
        server = socket.create_server(("127.0.0.1", 0))
        def connect():
            with socket.socket() as s:
                s.connect(server.getsockname())
                server.accept()[0].close()
                return os.fstat(s.fileno()).st_ino
        first = connect()
        print(*[connect() == first for _ in range(3)])
    """

    def test_the_next_connection_takes_it(self):
        argv = (sys.executable, "-c", self.SCRIPT)
        self.assertEqual(self.run_it(*argv).end().split(), ["True"] * 3)
        self.assertEqual(self.run_it(*argv, shim=False).end().split(), ["False"] * 3)


class Bare(Case):
    """A program that has no /proc, beside others that have."""

    LISTEN = "import signal, socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); signal.pause()"

    def test_signals_of_readiness_come(self):
        without_proc = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
        if subprocess.run((*without_proc, "true"), capture_output=True, check=False).returncode != 0:
            self.skipTest("no mount namespaces here")
        self.server(sys.executable, "-c", self.LISTEN, str(self.port))          # unetd cannot be started without /proc
        for scene in ("async_connections", "async_sockets"):
            with self.subTest(scene=scene):
                ours, kernel = (self.run_it(*without_proc, "env", *env, CALLS, scene, shim=False)
                                for env in ((f"LD_PRELOAD={SHIM}", "UNET_LOG=1"), ()))
                self.assert_same(ours.end(), kernel.end())
                self.assertGreater(ours.said("ours"), 0, ours)


class Listener(Case):
    """What its connections would never tell is refused."""

    SCRIPT = """if True:
        import errno, socket, sys
        SO_TIMESTAMPING, TX_SOFTWARE, TX_ACK, TSONLY, STATS = 37, 1 << 1, 1 << 9, 1 << 11, 1 << 12
        s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        for flags in (TX_SOFTWARE, TX_ACK | TSONLY | STATS, TX_SOFTWARE | TSONLY, 0):
            try:
                s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
                print("done")
            except OSError as e:
                print("refused" if e.errno == errno.EOPNOTSUPP else e)
    """

    def test_times_with_the_packet_or_statistics(self):
        done = self.run_it(sys.executable, "-c", self.SCRIPT, str(self.port))
        self.assertEqual(done.end().split(), ["refused", "refused", "done", "done"])


class Native(Case):
    """A datagram socket of the native API has none of the kernel's: what the kernel would tell of goes there over the fabric, too."""

    RECEIVER = """if True:
        import ctypes, socket, struct, sys
        lib = ctypes.CDLL(sys.argv[2])
        s = lib.unet_socket(socket.AF_INET, socket.SOCK_DGRAM, 0)
        here = struct.pack("=HHI8x", socket.AF_INET, socket.htons(int(sys.argv[1])), socket.htonl(0x7f000001))
        print(lib.unet_bind(s, here, 16), flush=True)
        got = ctypes.create_string_buffer(100)
        for _ in range(6):
            n = lib.unet_recv(s, got, 100, 0)
            print(got.raw[:n].decode(), flush=True)
    """
    SENDER = """if True:
        import socket, sys
        SO_ZEROCOPY, MSG_ZEROCOPY, SO_TIMESTAMPING, TX_SOFTWARE = 60, 0x4000000, 37, 2
        there = "127.0.0.1", int(sys.argv[1])
        for connects in (True, False):
            s = socket.socket(type=socket.SOCK_DGRAM)
            if connects:
                s.connect(there)
            send = (lambda b, f=0: s.send(b, f)) if connects else (lambda b, f=0: s.sendto(b, f, there))
            send(b"first")
            s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
            send(b"not copied", MSG_ZEROCOPY)
            s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SOFTWARE)
            send(b"stamped")
    """

    def test_what_the_kernel_would_tell_of_gets_there(self):
        receiver = self.run_it(sys.executable, "-c", self.RECEIVER, str(self.port), os.path.join(BUILD, "libunet.so"), shim=False)
        wait_until("it has its port", lambda: receiver.text() != "")
        self.run_it(sys.executable, "-c", self.SENDER, str(self.port)).end()
        self.assertEqual(receiver.end(), "0\n" + "first\nnot copied\nstamped\n" * 2)


class Apart(Case):
    """A program in a time namespace of its own, on a bad cable, which ends before its last bytes have arrived: the keeper, whose clock
    is another, sends them again."""

    SENDER = """if True:
        import socket, sys
        connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(10)]
        for s in connections:
            s.sendall(b"x" * 30000)
    """
    READER = """if True:
        import socket, sys
        with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
            for _ in range(10):
                c, got = server.accept()[0], 0
                c.settimeout(60)
                while data := c.recv(65536):
                    got += len(data)
                print(got)
    """

    def test_the_last_bytes_of_a_program_whose_clock_is_another(self):
        for seconds in (-60, 864000):
            ahead = ("unshare", "-rT", "--monotonic", str(seconds), "--boottime", str(seconds), "--")
            if subprocess.run((*ahead, "true"), capture_output=True).returncode != 0:
                self.skipTest("no time namespaces here")
            with self.subTest(seconds=seconds):
                reader = self.server(sys.executable, "-c", self.READER, str(self.port))
                sender = self.run_it(*ahead, "env", f"LD_PRELOAD={SHIM}", "UNET_FAULT=loss=0.2,seed=5", sys.executable, "-c",
                                     self.SENDER, str(self.port), shim=False)
                sender.end()
                self.assertEqual(reader.end(), "30000\n" * 10)
                self.assertEqual(reader.said("ours"), 10)


class Slow(Case):
    """A machine on which daemons take long to start: programs wait for them, and do not go by the kernel."""

    def test_unetd_and_the_keeper_start_late(self):
        with tempfile.TemporaryDirectory() as libexec:
            for name, seconds in (("unetd", 11), ("unet-keeper", 7)):
                with open(os.path.join(libexec, name), "w", encoding="ascii") as f:
                    f.write(f"#!/bin/sh\n/bin/sleep {seconds}\nexec {os.environ['UNET_LIBEXEC']}/{name} \"$@\"\n")
                os.chmod(os.path.join(libexec, name), 0o755)
            p = self.run_it(CALLS, "read_write", env={"UNET_DOMAIN": os.environ["UNET_DOMAIN"] + "-slow", "UNET_LIBEXEC": libexec})
            p.end()
            self.assertGreater(p.said("(ours|both)"), 0, p)


class Iperf(Case):
    """The contract of iperf3: every option people use, and ^C at any moment."""

    def setUp(self):
        super().setUp()
        need("iperf3")

    def start(self, *args, shim=True):
        return self.server("iperf3", "-s", "-1", "-p", str(self.port), *args, shim=shim)

    def client(self, *args, shim=True):
        return self.run_it("iperf3", "-c", "127.0.0.1", "-p", str(self.port), *args, shim=shim)

    def measure(self, *args, so_much=lambda end: 1, least=0):
        """What it reports at the end; for longer where the machine has no time for `least` in a second."""
        for seconds in ("1", "10", "60"):
            server, client = self.start(), self.client("-t", seconds, "-J", *args)
            report = json.loads(client.end())
            self.assertNotIn("error", report)
            server.end()
            self.assertGreater(client.said("(ours|both)"), 1, client)
            if so_much(report["end"]) > least:
                break
            self.port = free_port()
        self.assertGreater(so_much(report["end"]), least, report["end"])
        return report

    def test_one_stream(self):
        end = self.measure(so_much=lambda end: end["sum_received"]["bytes"])["end"]
        self.assertIn("max_snd_cwnd", end["streams"][0]["sender"])
        self.assertIn("retransmits", end["sum_sent"])

    @long_run
    def test_parallel(self):
        self.assertEqual(len(self.measure("-P", "4")["end"]["streams"]), 4)

    def test_reverse(self):
        self.measure("-R", so_much=lambda end: end["sum_received"]["bytes"])

    def test_both_directions(self):
        self.measure("--bidir", so_much=lambda end: end["sum_received_bidir_reverse"]["bytes"])

    def test_sendfile(self):
        self.measure("-Z")

    def test_window_segment_delay_pacing_and_length(self):
        self.measure("-w", "128K", "-M", "1200", "-N", "--fq-rate", "500M", "-l", "1400")

    @long_run
    def test_congestion_control(self):
        self.measure("-C", "reno")

    def test_bytes(self):
        server, client = self.start(), self.client("-n", "20M", "-J")
        sent = json.loads(client.end())["end"]["sum_sent"]["bytes"]
        self.assertTrue(20 << 20 <= sent <= (20 << 20) + (128 << 10), sent)     # up to a block more where a send had to wait
        server.end()

    def test_udp(self):
        self.measure("-u", "-b", "100M", "-l", "1400", so_much=lambda end: end["sum"]["packets"], least=100)

    @long_run
    def test_udp_both_directions(self):
        self.measure("-u", "-b", "50M", "-l", "1000", "--bidir")

    def test_loss(self):
        fault = {"UNET_FAULT": "loss=0.01"}
        server = self.server("iperf3", "-s", "-1", "-p", str(self.port), env=fault)
        client = self.run_it("iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-n", "200M", "-J", env=fault)
        report = json.loads(client.end())
        server.end()
        self.assertGreater(report["end"]["sum_sent"]["retransmits"], 0)     # of 3,000 segments none lost: 1e-13

    def test_an_ordinary_client(self):
        server = self.start()
        self.client("-t", "1", shim=False).end()
        server.end()
        self.assertGreater(server.said("kernel: came by the kernel"), 0)

    def test_an_ordinary_server(self):
        server, client = self.start(shim=False), self.client("-t", "1")
        client.end()
        server.end()
        self.assertGreater(client.said("kernel"), 0)

    def interrupt(self, who, rnd):
        server, client = self.start(), self.client("-t", "600", "-i", "0.1")
        wait_until("a connection", lambda: server.said("ours") or client.child.poll() is not None)
        self.assertIsNone(client.child.poll(), client)
        time.sleep(rnd.choice((0, rnd.uniform(0, 0.02), rnd.uniform(0, 0.6))))
        victim = client if who == "client" else server
        victim.child.send_signal(signal.SIGINT)
        victim.end(ok=None)
        self.assertGreaterEqual(victim.child.returncode, 0, victim)
        self.assertIn("interrupt", victim.text() + victim.text(1), victim)
        other = server if who == "client" else client
        other.end(ok=None)
        self.port = free_port()

    def test_interrupted_client(self):
        rnd = random.Random(SEED)
        for _ in range(INTERRUPTS):
            self.interrupt("client", rnd)

    def test_interrupted_server(self):
        rnd = random.Random(SEED + 1)
        for _ in range(INTERRUPTS):
            self.interrupt("server", rnd)


class Programs(Case):
    def data(self, n):
        return random.Random(SEED).randbytes(n)

    def netcat(self, program, listen, connect, data):
        need(program)
        server = self.server(program, *listen)
        with tempfile.TemporaryFile() as f:
            f.write(data)
            f.seek(0)
            client = self.run_it(program, *connect, stdin=f)
            client.end()
        server.end()
        server.files[0].seek(0)
        self.assertEqual(hashlib.sha256(server.files[0].read()).digest(), hashlib.sha256(data).digest())
        self.assertEqual(client.said("ours"), 1)

    def test_nc_openbsd(self):
        self.netcat("nc.openbsd", ("-l", "-N", "127.0.0.1", str(self.port)),
                    ("-N", "127.0.0.1", str(self.port)), self.data(3 << 20))

    def test_nc_traditional(self):
        self.netcat("nc.traditional", ("-l", "-p", str(self.port)),
                    ("-q", "0", "127.0.0.1", str(self.port)), self.data(3 << 20))

    def test_curl(self):
        need("curl")
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "file"), "wb") as f:
                f.write(self.data(5 << 20))
            self.server("/usr/bin/python3", "-m", "http.server", "--directory", d, "--bind", "127.0.0.1",
                        str(self.port))
            for shim in (True, False):
                client = self.run_it("curl", "-sS", "-o", os.path.join(d, "copy"),
                                     f"http://127.0.0.1:{self.port}/file", shim=shim)
                client.end()
                with open(os.path.join(d, "copy"), "rb") as f:
                    self.assertEqual(f.read(), self.data(5 << 20))
                self.assertEqual(client.said("ours"), 1 if shim else 0)

    def sockperf_client(self, *argv):
        """sockperf counts nothing of the beginning and the end: on a machine that has no time for it, of all. What it still waits
        for when its time is over it calls dropped: one, where the server had no processor just then."""
        for seconds in (1, 3, 10) * 7:
            client = self.run_it("sockperf", "pp", "-t", str(seconds), *argv)
            out = client.end()
            if "No valid observations" not in out and "# dropped messages = 1;" not in out:
                break
        return client, out

    def sockperf(self, *more, server=True):
        need("sockperf")
        kind = "tcp" if "--tcp" in more else "udp"
        s = self.server("sockperf", "sr", "-i", "127.0.0.1", "-p", str(self.port), *more, shim=server, kind=kind)
        client, out = self.sockperf_client("-i", "127.0.0.1", "-p", str(self.port), *more)
        s.child.send_signal(signal.SIGINT)
        s.end()
        self.assertRegex(out, r"# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0")
        return client

    def test_sockperf_tcp(self):
        self.assertEqual(self.sockperf("--tcp").said("ours"), 1)

    def test_sockperf_udp(self):
        self.assertGreater(self.sockperf().said("both"), 0)

    def test_sockperf_epoll(self):
        for kind in ("epoll", "poll", "select"):
            with self.subTest(kind), tempfile.NamedTemporaryFile("w") as feed:
                self.port = free_port()
                feed.write(f"T:127.0.0.1:{self.port}\n")
                feed.flush()
                s = self.server("sockperf", "sr", "-f", feed.name, "-F", kind[0])
                self.assertRegex(self.sockperf_client("-f", feed.name, "-F", kind[0])[1], r"# dropped messages = 0")
                s.child.send_signal(signal.SIGINT)
                s.end()

    def test_sockperf_to_an_ordinary_server(self):
        self.assertEqual(self.sockperf("--tcp", server=False).said("ours"), 0)


class Limited(Case):
    """Programs whose address space is limited (RLIMIT_AS): shim_calls has the rest."""

    KB = 2200 << 10                   # room for a stack and a few channels
    CLIENTS = 9

    def peer(self, kb, *args, **more):
        return self.run_it("sh", "-c", f'ulimit -S -v {kb}; exec "$@"', "sh", "/usr/bin/python3",
                           os.path.join(SOURCE, "tests", "shim", "peer.py"), *args, **more)

    def test_who_comes_when_there_is_no_room_goes_by_the_kernel(self):
        server = self.peer(self.KB, "server", "threads", str(self.port), str(self.CLIENTS))
        wait_until("the listener", lambda: listens(self.port))
        clients = [self.peer("unlimited", "client", "staying", str(self.port), stdin=subprocess.PIPE)
                   for _ in range(self.CLIENTS)]
        for c in clients:
            wait_until("an echo", lambda c=c: c.text() == "echoed\n" or c.child.poll() is not None)
        for c in clients:
            c.child.stdin.close()
            c.end()
        server.end()
        self.assertGreater(server.said("ours: came over the fabric"), 2)
        self.assertGreater(server.said("kernel: came by the kernel"), 0)
        self.assertEqual(sum(c.said("ours") for c in clients), server.said("ours: came over the fabric"))

    def test_too_little_room_is_the_reason(self):
        for mb in (100, 200, 400):
            with self.subTest(mb=mb):
                p = self.peer(mb << 10, "client", "of_itself", str(self.port))
                p.end()
                self.assertGreater(p.said(r"kernel: too little address space .* \(RLIMIT_AS, "), 1)
                self.assertEqual(p.said("(ours|both)"), 0)


class Squeezed(Case):
    """A running program whose address space somebody else limits to what it has: who comes from then on goes by the kernel."""

    ECHO = """if True:
        import select, socket, sys
        server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        sockets = [server]
        while True:
            for s in select.select(sockets, [], [])[0]:
                if s is server:
                    sockets.append(server.accept()[0])
                elif data := s.recv(1000):
                    s.sendall(data)
                else:
                    sockets.remove(s)
                    s.close()
    """
    ASK = """if True:
        import socket, sys
        with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
            s.settimeout(100)
            for line in sys.stdin:
                s.sendall(line.encode())
                print(s.recv(1000).decode(), end="", flush=True)
    """

    def ask(self):
        return self.run_it(sys.executable, "-c", self.ASK, str(self.port), stdin=subprocess.PIPE)

    def asks(self, p, line):
        p.child.stdin.write(line.encode())
        p.child.stdin.flush()
        wait_until(f"an echo of {line}", lambda: p.text().endswith(line))

    def test_who_comes_later_goes_by_the_kernel(self):
        server = self.server(sys.executable, "-c", self.ECHO, str(self.port))
        first = self.ask()
        self.asks(first, "before\n")
        resource.prlimit(server.child.pid, resource.RLIMIT_AS, (200 << 20, resource.RLIM_INFINITY))
        for _ in range(5):
            later = self.ask()
            self.asks(later, "later\n")
            later.child.stdin.close()
            later.end()
        self.asks(first, "after\n")
        first.child.stdin.close()
        first.end()
        self.assertEqual((server.said("ours"), server.said("kernel")), (1, 5), server)


class Numberless(Case):
    """A running server whose numbers somebody else limits (prlimit(1)), while clients of both kinds wait to be accepted: the kernel's
    are served, and what there is no number for is told at once, as the kernel tells it."""

    ACCEPT = """if True:
        import errno, os, socket, sys, time
        server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
        files = [os.dup(0) for _ in range(int(sys.argv[2]))]
        for line in sys.stdin:
            for fd in files if line == "close\\n" else ():
                os.close(fd)
            began = time.monotonic()
            try:
                with server.accept()[0] as s:
                    said = s.recv(100).decode()
            except OSError as e:
                said = errno.errorcode[e.errno]
            print(said, time.monotonic() - began < 3, flush=True)
    """
    CONNECT = """if True:
        import socket, sys, time
        with socket.create_server(("127.0.0.1", 0)) as s:
            socket.create_connection(s.getsockname()).close()
        print("there", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        for _ in range(5):
            socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
        print(time.monotonic() - began < 2, flush=True)
    """
    COME = """if True:
        import socket, sys
        s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        s.sendall(sys.argv[2].encode())
        print("there", flush=True)
        s.recv(1)
    """

    def come(self, name, **more):
        p = self.run_it(sys.executable, "-c", self.COME, str(self.port), name, **more)
        wait_until(f"{name} to be there", lambda: p.text() == "there\n")
        return p

    def accepted(self, server, line="\n"):
        before = server.text()
        server.child.stdin.write(line.encode())
        server.child.stdin.flush()
        wait_until("accept() to return", lambda: server.text() != before and server.text().endswith("\n"))
        return server.text()[len(before):]

    def served(self, files, limit):
        """Until there are more numbers, all who come by the kernel; its server."""
        server = self.server(sys.executable, "-c", self.ACCEPT, str(self.port), str(files), stdin=subprocess.PIPE)
        first = self.come("fabric")
        self.come("kernel", shim=False)
        resource.prlimit(server.child.pid, resource.RLIMIT_NOFILE, (limit, limit))
        self.assertEqual(self.accepted(server), "kernel True\n")
        self.assertEqual(self.accepted(server), "EMFILE True\n")
        later = self.come("later")
        self.assertEqual(self.accepted(server), "later True\n")
        self.assertEqual((first.said("ours"), later.said("kernel")), (1, 1), later)
        return server

    def test_hardly_any(self):
        self.served(0, 8)

    def test_who_connects_without_goes_by_the_kernel_at_once(self):
        """... to a stack to which it has no channel yet."""
        self.server(sys.executable, "-c", Bare.LISTEN, str(self.port))
        p = self.run_it(sys.executable, "-c", self.CONNECT, str(self.port), stdin=subprocess.PIPE)
        wait_until("a stack", lambda: p.text() == "there\n")
        resource.prlimit(p.child.pid, resource.RLIMIT_NOFILE, (8, 8))
        p.child.stdin.write(b"\n")
        p.child.stdin.close()
        self.assertEqual(p.end(), "there\nTrue\n")
        self.assertEqual(p.said("kernel: no room for a channel"), 5, p)

    def test_used_up_until_some_are_closed(self):
        server = self.served(40, 48)
        self.assertEqual(self.accepted(server, "close\n"), "fabric True\n")


class Sandboxed(Case):
    """sshd: a program of its own for each connection, which locks itself in (seccomp) before it reads a byte of it."""

    SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")

    def setUp(self):
        super().setUp()
        need("ssh-keygen")
        if not self.SSHD:
            raise unittest.SkipTest("no sshd here")
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)     # its empty directory, which its service would make
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(key)], check=True, timeout=LIMIT)
        with open(self.path("config"), "w", encoding="ascii") as f:
            f.write(f"""ListenAddress 127.0.0.1:{self.port}
                        HostKey {self.path("host")}
                        AuthorizedKeysFile {self.path("user.pub")}
                        PidFile none
                        StrictModes no
                        UsePAM no
                        LoginGraceTime 0
                        MaxStartups 100
                        Subsystem sftp internal-sftp""")

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def options(self, port):
        return ("-F", "none", "-i", self.path("user"), port, str(self.port), "-o", "StrictHostKeyChecking=no",
                "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR")

    def test_sshd_and_ssh(self):
        data = random.Random(SEED).randbytes(5 << 20)
        with open(self.path("file"), "wb") as f:
            f.write(data)
        who = pwd.getpwuid(os.getuid()).pw_name + "@127.0.0.1"
        self.server(self.SSHD, "-D", "-e", "-f", self.path("config"))
        sessions = [self.run_it("ssh", *self.options("-p"), who, f"sha256sum < {self.path('file')}", shim=i < 5) for i in range(6)]
        for s in sessions:
            self.assertIn(hashlib.sha256(data).hexdigest(), s.end())
            self.assertEqual(s.said("ours"), 1 if s.shim else 0)
        self.run_it("scp", "-q", *self.options("-P"), self.path("file"), f"{who}:{self.path('copy')}").end()
        with open(self.path("copy"), "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).digest(), hashlib.sha256(data).digest())


class Peers(Case):
    """tests/shim/peer.py's servers and clients in Python: event loops, threads, half close, odd sizes."""

    def peer(self, role, what, *args, **more):
        argv = ("/usr/bin/python3", os.path.join(SOURCE, "tests", "shim", "peer.py"), role, what, str(self.port), *args)
        return self.server(*argv, **more) if role == "server" else self.run_it(*argv, **more)

    def both(self, what, *args, server=True, client=True):
        s = self.peer("server", what, *args, shim=server)
        c = self.peer("client", what, *args, shim=client)
        out = c.end()
        s.end()
        return out, s, c

    def test_half_close_both_ways(self):
        for server, client in ((True, True), (True, False), (False, True)):
            with self.subTest(server=server, client=client):
                self.both("half_close", str(SEED), server=server, client=client)
                self.port = free_port()

    def test_a_signal_every_millisecond(self):
        self.both("alarms", str(SEED))

    def test_idle_costs_nothing(self):
        s, c = self.peer("server", "idle"), self.peer("client", "idle")
        wait_until("both are connected", lambda: s.said("ours") and c.said("ours"))
        costs = []
        while not costs or (costs[-1] >= 2e6 and len(costs) < 20):      # the first may be of the start
            before = s.used() + c.used()
            time.sleep(3)
            costs.append(s.used() + c.used() - before)
        self.assertLess(costs[-1], 2e6, f"ns in 3 s, again and again: {costs}")
        c.child.kill()
        s.end()

    def test_writes_of_all_sizes_without_waiting(self):
        self.both("odd_sizes", str(SEED))

    def transfers(self, env=None):
        """Both ways at once with half closes, and writes of all sizes that do not wait."""
        ends = {"env": env} if env else {}
        total = str(WHOLE if os.environ.get("UNET_WHOLE") else PART)
        s = self.peer("server", "half_close_of", str(SEED), total, **ends)
        c = self.peer("client", "half_close_of", str(SEED), total, **ends)
        sent, got = c.end().split()
        self.assertEqual(s.end().split(), [got, sent])
        self.port = free_port()
        s = self.peer("server", "odd_sizes", str(SEED), total, **ends)
        c = self.peer("client", "odd_sizes", str(SEED), total, **ends)
        c.end()
        s.end()

    def test_transfers(self):
        self.transfers()

    def test_transfers_with_loss(self):
        self.transfers({"UNET_FAULT": "loss=0.01"})

    def test_many_connections_in_an_event_loop(self):
        self.both("event_loop", "100")

    def test_threads(self):
        self.both("threads", "8")

    def test_a_forking_server(self):
        self.both("forking", "20")

    def test_a_prefork_server(self):
        self.both("prefork", "40")

    def test_what_a_gone_process_sent_arrives(self):
        self.both("gone", "30")

    def test_who_is_accepted_and_reset_at_once_was_connected(self):
        self.both("resets", "300")

    def test_threads_that_come_and_go(self):
        self.both("churn", "25")

    def test_inherited_as_standard_input_and_output(self):
        self.both("inetd", "5")

    def test_passed_to_another_process(self):
        self.both("passing", "5")

    def test_dual_stack(self):
        self.both("dual", "4")

    def test_a_datagram_socket_that_was_full_has_an_edge(self):
        self.against("slow")

    def test_who_waits_for_room_for_a_datagram_sleeps(self):
        self.against("stops")

    def against(self, what):
        """A client against a server of datagrams that does not end by itself."""
        self.peer("server", what, kind="udp")
        self.peer("client", what).end()

    def test_both_kinds_of_clients_are_served(self):
        s = self.peer("server", "event_loop", "20")
        clients = [self.peer("client", "event_loop", "10", shim=shim) for shim in (True, False)]
        for c in clients:
            c.end()
        s.end()


if __name__ == "__main__":
    print(f"seed {SEED}", file=sys.stderr)
    unittest.main(verbosity=2)
