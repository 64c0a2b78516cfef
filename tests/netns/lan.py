"""Hosts on veth cables, each a network namespace of this run's own; one may be ours, by a unetd of its own.

A host is a directory-less namespace named after this process; everything in it ends with close(): programs by pid, then
the namespace, and the cable with it.
"""

import contextlib
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import behind

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from long_run import LONG, long_run  # noqa: E402,F401
from waiting import after_look  # noqa: E402

BUILD = os.environ["UNET_BUILD"]
SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
UNET = os.path.join(BUILD, "tools", "unet")
UNETD = os.path.join(BUILD, "unetd", "unetd")
IFACE = "cable0"
MODE = os.environ.get("UNET_TEST_MODE", "auto")         # of interfaces (unet.conf(5)), where a test names none
NICS = os.environ.get("UNET_TEST_NICS", "").split()     # two devices on one wire, for the cable of a test; else it is a veth pair
NEWNET = 0x40000000                                     # CLONE_NEWNET of setns(2)
WAITS = {"t": "0A", "u": "07"}                          # the state of a socket that waits for others, as /proc/net tells it
TRANSFER = 900 if os.environ.get("UNET_WHOLE") else 300         # seconds, at most
PEER = (sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py"))


def sanitizer():
    """The library that has to be in a program before the shim of a build with sanitizers; or None."""
    done = subprocess.run(("ldd", SHIM), capture_output=True, text=True, check=False)
    found = re.search(r"lib[at]san\.so\S* => (\S+)", done.stdout)
    return found[1] if found else None


SANITIZER = sanitizer()


def why_not():
    """Why there can be no such hosts here, or None."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    for program in ("ip", "ethtool"):
        if not shutil.which(program):
            return f"no {program} here"
    if subprocess.run(["ip", "netns", "add", f"unet-try-{os.getpid()}"], capture_output=True).returncode:
        return "network namespaces cannot be made here"
    sh("ip", "netns", "del", f"unet-try-{os.getpid()}")
    return None


def has_failed(test):
    """Of a unittest.TestCase, in its tearDown()."""
    result = test._outcome.result       # from Python 3.11 on; before, what went wrong is in `errors`
    return (any(error for _, error in getattr(test._outcome, "errors", [])) or
            any(test.id() in t.id() for t, _ in result.failures + result.errors))


def missing(*programs):
    """The first of them that is not here, as a reason; or None."""
    return next((f"no {program} here" for program in programs if not shutil.which(program)), None)


def sh(*argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    return done.stdout


def go_into(name):
    """The thread that calls this is in that network namespace from now on, and so is what it starts."""
    with open(f"/run/netns/{name}", "rb") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns: {name}")


class Program:
    """A program on a host; what it wrote."""

    def __init__(self, host, argv, env, stdin=subprocess.DEVNULL):
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        self.argv = argv
        self.child = subprocess.Popen(["ip", "netns", "exec", host.name, *argv], stdin=stdin, stdout=self.files[0],
                                      stderr=self.files[1], env=env)

    def text(self, which=0):
        out = self.files[which].fileno()        # not by seek(): the program writes at the offset that it shares with us
        return os.pread(out, os.fstat(out).st_size, 0).decode(errors="replace")

    def shown(self):
        """The ends of what it wrote, fit for a log."""
        return "\n".join(re.sub(r"[^\t\n -~]", ".", self.text(which)[-3000:]) for which in range(2))

    def __str__(self):
        status = self.child.poll()
        return f"{' '.join(self.argv)}: {'still runs' if status is None else f'status {status}'}\n{self.shown()}"

    def end(self, seconds=300, ok=(0,)):
        try:
            status = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"{' '.join(self.argv)}: did not end\n{self.shown()}") from None
        if ok is not None and status not in ok:
            raise AssertionError(f"{' '.join(self.argv)}: status {status}\n{self.shown()}")
        return self.text()

    def stop(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def forget(self):
        self.stop()
        for f in (*self.files, *filter(None, [self.child.stdin])):
            f.close()


class Host:
    """A namespace with one end of a cable. Ours: a unetd owns the interface, and programs run over the shim."""

    fence = ()                          # what unetd is run by

    def __init__(self, name, address):
        self.name, self.address = name, address
        self.programs, self.dir, self.ours, self.log = [], tempfile.mkdtemp(), False, ""
        self.daemon = self.libexec = None
        self.env = dict(os.environ)
        self.sanitized = {}             # what sanitizers are told in programs of ours
        sh("ip", "netns", "add", name)
        self.thread = ThreadPoolExecutor(1, initializer=go_into, initargs=(name,))
        self.ip("link", "set", "lo", "up")

    def inside(self, what, *args):
        """What that returns when a thread of ours calls it in there: no program is started for a look."""
        return self.thread.submit(what, *args).result()

    def ip(self, *argv):
        return self.sh("ip", *argv)

    def sh(self, *argv):
        """With the /sys of outside."""
        return self.inside(sh, *argv)

    def read(self, path):
        """A file of /proc/net or /proc/sys/net."""
        def read():
            with open(path.replace("/proc/net", "/proc/thread-self/net"), encoding="ascii") as f:
                return f.read()
        return self.inside(read)

    def programs_behind(self, *where):
        """... the interface's driver."""
        return self.inside(behind.names, IFACE, *where)

    def mac(self):
        return json.loads(self.ip("-j", "link", "show", IFACE))[0]["address"]

    def kernel_listens(self, port, kind):
        rows = (row.split() for version in ("", "6") for row in self.read(f"/proc/net/{kind}{version}").splitlines()[1:])
        return any(row[1].endswith(f":{port:04X}") and row[3] == WAITS[kind[0]] for row in rows)

    def comes_up(self, name):
        """Waits for the link: until then the kernel drops what it is given to send."""
        self.until(lambda: "state UP" in self.ip("link", "show", name), f"{self.name}: {name} up")

    def become_ours(self, gateway=None, mode=MODE, provider="auto", more=""):
        check = "no" if mode == "native" else "auto"            # an ordinary user has an AF_XDP socket of his own only unchecked
        self.own(f"{more}[interface {IFACE}]\naddress = {self.address}/24\nmode = {mode}\nprovider = {provider}\ncheck = {check}\n" +
                 (f"gateway = {gateway}\n" if gateway else ""))

    def own(self, text):
        """A unetd of its own, with this config file; its programs are where a test can take them away."""
        config = os.path.join(self.dir, "unet.conf")
        with open(config, "w", encoding="ascii") as f:
            f.write(text)
        self.log = os.path.join(self.dir, "unetd.log")
        self.ours = True
        self.libexec = tempfile.mkdtemp(dir=self.dir)
        if SANITIZER:
            self.watch()
        for program in ("unetd", "unet-keeper"):
            self.install(program)
        for path in (self.dir, self.libexec):
            os.chmod(path, 0o755)       # keepers run as their users
        self.env.update(UNET_CONFIG=config, UNET_DOMAIN=self.name[-30:], UNET_LIBEXEC=self.libexec)
        self.start_daemon()

    def watch(self):
        """What sanitizers find is written to a folder. Unmodified programs leak, and end with it; ASan would limit core dumps
        before its memory is there, by our setrlimit()."""
        where = os.path.join(self.dir, "found")
        os.makedirs(where, exist_ok=True)
        os.chmod(where, 0o777)          # by keepers and programs of any user
        told = f"log_path={where}/by:verify_asan_link_order=0:detect_leaks=0:disable_coredump=0"
        self.sanitized = {f"{kind}SAN_OPTIONS": told for kind in ("A", "UB", "T")}

    def found(self):
        """What they found."""
        said = []
        for path in sorted(glob.glob(os.path.join(self.dir, "found", "*"))):
            with open(path, encoding="utf-8", errors="replace") as f:
                said.append(f.read())
        return "\n".join(said)

    def install(self, program):
        """Where unetd is started from, and starts keepers from; they begin with an empty environment."""
        path, built = os.path.join(self.libexec, program), os.path.join(BUILD, "unetd", program)
        if not self.sanitized:
            os.symlink(built, path)
            return
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + "".join(f"export {k}='{v}'\n" for k, v in self.sanitized.items()) + f'exec {built} "$@"\n')
        os.chmod(path, 0o755)

    def start_daemon(self):
        before = self.logged().count("ready")
        told = [f"{k}={v}" for k, v in self.sanitized.items()]
        daemon = self.daemon = self.run("env", *told, *self.fence, UNETD, "--foreground", "--system", "--log", self.log, shim=False)
        self.until(lambda: self.logged().count("ready") > before or daemon.child.poll() is not None, "unetd")
        if daemon.child.poll() is not None:
            raise AssertionError(daemon.text(1) + self.logged())

    def logged(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def program_on_link(self):
        """Whether a program is on the interface that takes packets for a stack alone; by the kernel's word."""
        return "xdp" in self.ip("link", "show", IFACE) or "to_ring" in self.programs_behind()

    def received(self):
        """Bytes, by the interface."""
        return json.loads(self.ip("-j", "-s", "link", "show", IFACE))[0]["stats64"]["rx"]["bytes"]

    def counted(self, name):
        """What the kernel has counted in here, as /proc/net/netstat calls it."""
        lines = [line.split() for line in self.read("/proc/net/netstat").splitlines()]
        return {k: int(v) for names, values in zip(lines[::2], lines[1::2]) for k, v in zip(names[1:], values[1:])}[name]

    def become_kernels(self, gateway=None):
        self.ip("addr", "add", f"{self.address}/24", "dev", IFACE)
        self.sysctl(f"net.ipv4.neigh.{IFACE}.mcast_solicit", 60)    # not 3: a unetd that answers may get no processor for seconds
        if gateway:
            self.ip("route", "add", "default", "via", gateway)

    def sysctl(self, name, value):
        def write():
            with open(f"/proc/sys/{name.replace('.', '/')}", "w", encoding="ascii") as f:
                f.write(str(value))
        self.inside(write)

    def run(self, *argv, shim=True, user=None, log=True, **more):
        """`user`: a number; None: root. `log`: whether it says on standard error what it makes of each socket."""
        env = dict(self.env)
        if user:
            argv = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv)
        if self.ours and shim:
            env.update(LD_PRELOAD=f"{SANITIZER} {SHIM}" if SANITIZER else SHIM, UNET_LOG="1" if log else "0", **self.sanitized)
        p = Program(self, argv, env, **more)
        self.programs.append(p)
        return p

    def until(self, condition, what, seconds=120):
        deadline = time.monotonic() + seconds
        while (now := time.monotonic()) < deadline:
            if condition():
                return
            time.sleep(after_look(now))
        raise AssertionError(f"did not come in {seconds} s: {what}")

    def report(self):
        """What is needed to understand a failure where nobody can look: its programs, and what unetd says."""
        said = [f"--- {self.name}, {self.address}, load {os.getloadavg()}", *map(str, self.programs)]
        if self.ours:
            said += [f"unet {verb}:\n{self.told(verb)}" for verb in ("status", "ss", "if")]
            said.append(f"unetd:\n{self.logged()[-4000:]}")
        return "\n".join(said)

    def told(self, verb):
        try:
            done = self.inside(lambda: subprocess.run([UNET, verb], capture_output=True, text=True, env=self.env, timeout=60,
                                                      check=False))
        except subprocess.TimeoutExpired:
            return "says nothing"
        return done.stdout + done.stderr

    def listens(self, port):
        """Whether a stack of ours does."""
        return f":{port} " in self.told("ss")       # which fails where there are none yet

    def serve(self, port, *argv, kind="t", **more):
        """Runs a server and waits until it listens, on our stack too if the host is ours."""
        p = self.run(*argv, **more)

        def listening():
            if p.child.poll() is not None:
                raise AssertionError(f"{argv}: ended\n{p.text()}{p.text(1)}")
            if not self.kernel_listens(port, {"t": "tcp", "u": "udp"}[kind]):
                return False
            if not self.ours or more.get("shim") is False:
                return True
            return "unet: pid" in p.text(1) if more.get("log", True) else self.listens(port)

        self.until(listening, f"{argv[0]} on port {port}")
        return p

    def close(self):
        for p in reversed(self.programs):
            p.forget()
        self.thread.shutdown()
        for pid in sh("ip", "netns", "pids", self.name).split():        # what programs of ours have started
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


class Scene(unittest.TestCase):
    """Hosts that end with the test. If it failed, what was on each is shown, before the first of them goes."""

    def host(self, letter, address):
        h = Host(f"unet-{os.getpid()}-{letter}", address)
        self.hosts = getattr(self, "hosts", []) + [h]
        self.addCleanup(self.let_go, h)
        return h

    def let_go(self, host):
        hosts, self.hosts = self.hosts, []
        if has_failed(self):
            print("\n".join(h.report() for h in hosts), flush=True)
        found = host.found()
        host.close()
        if found:
            self.fail(found)

    def assert_ours(self, p):
        self.assertRegex(p.text(1), r"unet: pid \d+ fd \d+ \w+: (ours|both)")

    # Two programs that send to each other at once. Those that go on do it until exchanged(), so that whatever is done before is
    # done in the middle of it, however fast or slow this machine is; `megabytes` are what each sends after that.

    def both(self, server, client, address, port, megabytes, pause=0, goes_on=False, user=None, mine=None):
        """`user`: of the one that is ours; `mine`: the client's port."""
        enough = [self.enough()] if goes_on else []
        rest = [str(port), str(megabytes), str(pause), *enough]
        by = [user if h is self.ours else None for h in (server, client)]
        s = server.serve(port, *PEER, "both", "listen", address, *rest, user=by[0])
        c = client.run(*PEER, "both", "connect", f"{address}@{mine}" if mine else address, *rest, user=by[1])
        return s, c

    def enough(self):
        """The file whose coming tells those that go on."""
        path = os.path.join(self.ours.dir, "enough")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return path

    def exchanged(self, pair, megabytes, seconds=TRANSFER):
        """All that was sent arrived, as it was sent; at least so many megabytes each way."""
        with open(os.path.join(self.ours.dir, "enough"), "w", encoding="ascii"):
            pass
        (sent, received), there = (p.end(seconds).splitlines() for p in pair)
        self.assertEqual([received, sent], there)
        self.assertGreaterEqual(min(int(line.split()[1]) for line in there), megabytes << 20)
        self.assertEqual(sum("unet: pid" in p.text(1) for p in pair), 1)
        for p in pair:
            if "unet: pid" in p.text(1):
                self.assert_ours(p)


# For tshark: checksums are looked at (they are not by default), and from what is carried, which is random, no protocol is guessed.
CHECKS = [word for proto in ("ip", "tcp", "udp") for word in ("-o", f"{proto}.check_checksum:TRUE")]
CHECKS += [word for proto in ("tcp", "udp") for word in ("-d", f"{proto}.port==1-65535,data")]


class Wire:
    """What goes over the cable, by tshark's dumpcap at a host's end."""

    LAST = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
    s.bind((sys.argv[1], 0))
    s.send(bytes.fromhex("020000000001" "020000000002" "88b5") + sys.argv[2].encode().ljust(60))
"""

    def __init__(self, host):
        self.host, self.file, self.asked, self.answer = host, os.path.join(host.dir, "wire.pcap"), None, []
        self.shark = host.run("dumpcap", "-q", "-i", IFACE, "-B", "64", "-w", self.file)
        host.until(lambda: "File: " in self.shark.text(1) or self.shark.child.poll() is not None, "dumpcap")
        if self.shark.child.poll() is not None:
            raise AssertionError(str(self.shark))

    def close(self):
        """What a capture that is told to end has not read yet it never writes: it ends when it has the last frame, which is ours."""
        if self.shark.child.poll() is not None:
            return
        word, start = f"the last of {os.getpid()} {time.monotonic_ns()}", os.path.getsize(self.file)
        self.host.sh(sys.executable, "-c", self.LAST, IFACE, word)
        self.host.until(lambda: self.holds(word.encode(), start), "the last frame in the capture")
        self.shark.child.send_signal(signal.SIGINT)
        self.shark.end(ok=None)

    def holds(self, word, start):
        with open(self.file, "rb") as f:
            f.seek(start)
            return word in f.read()

    def seen(self, which, *more):
        self.close()
        return sh("tshark", "-r", self.file, *more, "-Y", which).splitlines()

    def so_far(self, which, *more):
        """... while it goes on: that it ends in the middle of a packet is no failure. It is read again when there is more of it."""
        asked = (os.path.getsize(self.file), which, *more)
        if asked != self.asked:
            argv = ("tshark", "-r", self.file, *more, "-Y", which)
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            self.asked, self.answer = asked, done.stdout.splitlines()
        return self.answer

    def caught(self, which):
        """A line for each packet that this filter of pcap-filter(7) lets through: in a tenth of the time that tshark starts in."""
        self.close()
        return sh("tcpdump", "-nr", self.file, which).splitlines()


def plug(device, host, name):
    """A NIC goes to a host, as it was at first. From another that is no more it comes back here, when the kernel gets round to it."""
    host.until(lambda: glob.glob(f"/sys/bus/*/devices/{device}/net/*"), f"{device} to be free")
    was = os.path.basename(glob.glob(f"/sys/bus/*/devices/{device}/net/*")[0])
    mac = sh("ethtool", "-P", was).split()[-1]
    sh("ip", "link", "set", was, "netns", host.name, "name", name, "address", mac)


def cable(a, b, mtu=1500, offload=False, names=(IFACE, IFACE)):
    """Joins two hosts."""
    for device, host, name in zip(NICS, (a, b), names):
        plug(device, host, name)
    if not NICS:
        sh("ip", "link", "add", names[0], "netns", a.name, "type", "veth", "peer", "name", names[1], "netns", b.name)
    for h, name in zip((a, b), names):
        h.ip("link", "set", name, "mtu", str(mtu), "up")
        if not offload:
            with contextlib.suppress(AssertionError):           # a device may know some of them only
                h.sh("ethtool", "-K", name, *(word for feature in ("tso", "gso", "gro", "tx", "rx") for word in (feature, "off")))
    for h, name in zip((a, b), names):
        h.comes_up(name)


def routers(r, t, near, far, mtu):
    """The networks of the addresses near and far, which r and t take on their cable0, reach each other over a cable of that MTU
    between the two."""
    cable(r, t, mtu, names=("middle0", "middle0"))
    for h, here, there, side in ((r, near, far, 1), (t, far, near, 2)):
        h.sysctl("net.ipv4.ip_forward", 1)
        h.ip("addr", "add", f"{here}/24", "dev", IFACE)
        h.ip("addr", "add", f"10.79.0.{side}/24", "dev", "middle0")
        h.ip("route", "add", f"{there.rsplit('.', 1)[0]}.0/24", "via", f"10.79.0.{3 - side}")


class Bad:
    """A host in the middle of the cable between two others, whose forwarder is told what to do to frames (tests/netns/impair.c)."""

    def __init__(self, host, a, b, mtu=1500, **settings):
        self.host, self.settings, self.forwarder = host, dict(settings), None
        cable(a, host, mtu, names=(IFACE, "left0"))
        cable(b, host, mtu, names=(IFACE, "right0"))
        for name in ("left0", "right0"):        # its own stack is no part of this
            host.ip("link", "set", name, "arp", "off", "addrgenmode", "none")
        self.forward(**settings)

    def forward(self, **settings):
        """From now on so; what is on its way is lost."""
        self.stop()
        words = [f"{k}={v}" for k, v in settings.items()]
        p = self.forwarder = self.host.run(os.path.join(BUILD, "tests", "netns", "impair"), "left0", "right0", *words)
        self.host.until(lambda: "seed" in p.text() or p.child.poll() is not None, "the forwarder")
        if p.child.poll() is not None:
            raise AssertionError(p.text(1))

    def stop(self):
        """Returns what was done in each direction, first to the right."""
        if self.forwarder is None:
            return None
        self.forwarder.child.terminate()
        done = json.loads(self.forwarder.end(ok=None).splitlines()[-1])
        self.forwarder = None
        return [done[1], done[0]]
