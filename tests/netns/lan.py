"""Hosts on veth cables, each a network namespace of this run's own; one may be ours, by a unetd of its own.

A host is a directory-less namespace named after this process; everything in it ends with close(): programs by pid, then
the namespace, and the cable with it.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BUILD = os.environ["UNET_BUILD"]
SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
UNET = os.path.join(BUILD, "tools", "unet")
UNETD = os.path.join(BUILD, "unetd", "unetd")
IFACE = "cable0"


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

    def __init__(self, name, address):
        self.name, self.address = name, address
        self.programs, self.dir, self.ours, self.log = [], tempfile.mkdtemp(), False, ""
        self.daemon = self.libexec = None
        self.env = dict(os.environ)
        sh("ip", "netns", "add", name)
        self.ip("link", "set", "lo", "up")

    def ip(self, *argv):
        return sh("ip", "-n", self.name, *argv)

    def sh(self, *argv):
        return sh("ip", "netns", "exec", self.name, *argv)

    def become_ours(self, gateway=None, mode="auto", link="auto"):
        self.own(f"[interface {IFACE}]\naddress = {self.address}/24\nmode = {mode}\nlink = {link}\n" +
                 (f"gateway = {gateway}\n" if gateway else ""))

    def own(self, text):
        """A unetd of its own, with this config file; its programs are where a test can take them away."""
        config = os.path.join(self.dir, "unet.conf")
        with open(config, "w", encoding="ascii") as f:
            f.write(text)
        self.log = os.path.join(self.dir, "unetd.log")
        self.ours = True
        self.libexec = tempfile.mkdtemp(dir=self.dir)
        for program in ("unetd", "unet-keeper"):
            os.symlink(os.path.join(BUILD, "unetd", program), os.path.join(self.libexec, program))
        for path in (self.dir, self.libexec):
            os.chmod(path, 0o755)       # keepers run as their users
        self.env.update(UNET_CONFIG=config, UNET_DOMAIN=self.name[-30:], UNET_LIBEXEC=self.libexec)
        self.start_daemon()

    def start_daemon(self):
        before = self.logged().count("ready")
        daemon = self.daemon = self.run(UNETD, "--foreground", "--system", "--log", self.log, shim=False)
        self.until(lambda: self.logged().count("ready") > before or daemon.child.poll() is not None, "unetd")
        if daemon.child.poll() is not None:
            raise AssertionError(daemon.text(1) + self.logged())

    def logged(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def program_on_link(self):
        """Whether an XDP program is on the interface."""
        return "xdp" in self.ip("link", "show", IFACE)

    def received(self):
        """Bytes, by the interface."""
        return json.loads(self.ip("-j", "-s", "link", "show", IFACE))[0]["stats64"]["rx"]["bytes"]

    def become_kernels(self, gateway=None):
        self.ip("addr", "add", f"{self.address}/24", "dev", IFACE)
        if gateway:
            self.ip("route", "add", "default", "via", gateway)

    def sysctl(self, name, value):
        self.sh("sysctl", "-qw", f"{name}={value}")

    def run(self, *argv, shim=True, user=None, log=True, **more):
        """`user`: a number; None: root. `log`: whether it says on standard error what it makes of each socket."""
        env = dict(self.env)
        if user:
            argv = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv)
        if self.ours and shim:
            env.update(LD_PRELOAD=SHIM, UNET_LOG="1" if log else "0")
        p = Program(self, argv, env, **more)
        self.programs.append(p)
        return p

    def until(self, condition, what, seconds=120):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if condition():
                return
            time.sleep(0.02)
        raise AssertionError(f"did not come: {what}\n{self.report()}")

    def report(self):
        """What is needed to understand a failure where nobody can look: its programs, and what unetd says."""
        said = [f"--- {self.name}, {self.address}, load {os.getloadavg()}", *map(str, self.programs)]
        if self.ours:
            for verb in ("status", "ss", "if"):
                done = subprocess.run(["ip", "netns", "exec", self.name, UNET, verb], capture_output=True, text=True,
                                      env=self.env, timeout=120, check=False)
                said.append(f"unet {verb}:\n{done.stdout}{done.stderr}")
            said.append(f"unetd:\n{self.logged()[-4000:]}")
        return "\n".join(said)

    def listens(self, port):
        """Whether a stack of ours does."""
        return f":{port} " in sh("ip", "netns", "exec", self.name, "env", *(f"{k}={v}" for k, v in self.env.items() if "UNET" in k),
                                 UNET, "ss")

    def serve(self, port, *argv, kind="t", **more):
        """Runs a server and waits until it listens, on our stack too if the host is ours."""
        p = self.run(*argv, **more)

        def listening():
            if p.child.poll() is not None:
                raise AssertionError(f"{argv}: ended\n{p.text()}{p.text(1)}")
            if f":{port} " not in self.sh("ss", f"-Hn{kind}l"):
                return False
            if not self.ours or more.get("shim") is False:
                return True
            return "unet: pid" in p.text(1) if more.get("log", True) else self.listens(port)

        self.until(listening, f"{argv[0]} on port {port}")
        return p

    def close(self):
        for p in reversed(self.programs):
            p.forget()
        for pid in self.sh("ip", "netns", "pids", self.name).split():   # what programs of ours have started
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


class Scene(unittest.TestCase):
    """Hosts that end with the test. If it failed, what was on `ours` is shown."""

    def host(self, letter, address):
        h = Host(f"unet-{os.getpid()}-{letter}", address)
        self.addCleanup(h.close)
        return h

    def tearDown(self):
        if has_failed(self):
            print(self.ours.report())

    def assert_ours(self, p):
        self.assertRegex(p.text(1), r"unet: pid \d+ fd \d+ \w+: (ours|both)")


# For tshark: checksums are looked at (they are not by default), and from what is carried, which is random, no protocol is guessed.
CHECKS = [word for proto in ("ip", "tcp", "udp") for word in ("-o", f"{proto}.check_checksum:TRUE")]
CHECKS += [word for proto in ("tcp", "udp") for word in ("-d", f"{proto}.port==1-65535,data")]


class Wire:
    """What goes over the cable, by tshark at a host's end."""

    def __init__(self, host):
        self.host, self.file = host, os.path.join(host.dir, "wire.pcap")
        self.shark = host.run("tshark", "-i", IFACE, "-B", "64", "-w", self.file)
        host.until(lambda: re.search("Capturing on|Capture started", self.shark.text(1)) and os.path.exists(self.file),
                   "tshark")

    def close(self):
        """What a capture that is told to end has not read yet it never writes: it ends when the file grows no more."""
        if self.shark.child.poll() is not None:
            return
        size, quiet = -1, time.monotonic()
        while time.monotonic() - quiet < 1.5:
            now = os.path.getsize(self.file)
            if now != size:
                size, quiet = now, time.monotonic()
            time.sleep(0.02)
        self.shark.child.send_signal(signal.SIGINT)
        self.shark.end(ok=None)

    def seen(self, which, *more):
        self.close()
        return sh("tshark", "-r", self.file, *more, "-Y", which).splitlines()


def cable(a, b, mtu=1500, offload=False, names=(IFACE, IFACE)):
    """Joins two hosts."""
    sh("ip", "link", "add", names[0], "netns", a.name, "type", "veth", "peer", "name", names[1], "netns", b.name)
    for h, name in zip((a, b), names):
        h.ip("link", "set", name, "mtu", str(mtu), "up")
        if not offload:
            for feature in ("tso", "gso", "gro", "tx", "rx"):
                subprocess.run(["ip", "netns", "exec", h.name, "ethtool", "-K", name, feature, "off"],
                               capture_output=True)


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
