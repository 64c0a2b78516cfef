"""What a row of bench/programs is made of: a server that is started, a load that is put on it, and what comes of that."""

import glob
import os
import pwd
import re
import shutil
import signal
import tempfile
import time
from collections import namedtuple

from . import host, process
from .process import Failed

# One row. client(server, n) is the command line that makes n requests. read(text, server) tells, of its output, what it did a second
# ("rate"), and "p50_us", "p99_us" where it says so. Of a run of one second there are `count` requests: a number, not a time, so that
# a busy machine makes a run longer and never void. A client that knows times only tells how many "requests" there were. --quick leaves
# out what has so many clients that their start takes longer than their requests.
Load = namedtuple("Load", "name count client read quick", defaults=(True,))

# Which half of a measurement is over U-Net. An ordinary client is one that knows nothing of U-Net, at a server that does.
Side = namedtuple("Side", "server client")
SIDES = {"kernel": Side("kernel", "kernel"), "unet": Side("unet", "unet"), "ordinary": Side("unet", "kernel")}

_scratch = []


def clean_up():
    for path in _scratch:
        shutil.rmtree(path, ignore_errors=True)


def found(pattern, text):
    m = re.search(pattern, text, re.M)
    if not m:
        raise Failed(f"no result in the output of the client:\n{text[-600:]}")
    return float(m.group(1))


def percentiles(counted):
    """p50 and p99 of (us, how many) in the order of us."""
    total, seen, values = sum(n for _, n in counted), 0, {}
    for us, n in counted:
        seen += n
        for name, part in (("p50_us", 0.5), ("p99_us", 0.99)):
            if seen >= total * part:
                values.setdefault(name, us)
    return values


def search_path():
    """Debian keeps PostgreSQL's server beside the path, and its own python belongs to its own scripts."""
    postgres = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
    return ":".join([*postgres, "/usr/sbin", "/usr/bin", "/sbin", "/bin", os.environ.get("PATH", "")])


class Server:
    """Programs that listen on self.ports until the end of the with statement."""
    name, programs, loads = "", (), ()
    user = None                                 # who runs it and its clients, where we are root
    doors = 1                                   # how many ports it needs
    end_signal = signal.SIGTERM

    @classmethod
    def installed(cls):
        return (all(shutil.which(p, path=search_path()) for p in cls.programs)
                and (cls.user is None or os.geteuid() != 0 or cls.user in [u.pw_name for u in pwd.getpwall()]))

    def __init__(self, bench, side):
        self.bench, self.side, self.children = bench, side, []
        self.ports = [host.free_port() for _ in range(self.doors)]
        self.port = self.ports[0]
        self.top = self.scratch()

    def scratch(self):
        """A folder of the server's user, gone when bench/programs ends."""
        path = tempfile.mkdtemp(prefix="unet-programs-")
        os.chmod(path, 0o755)
        if self.other_user():
            os.chown(path, pwd.getpwnam(self.user).pw_uid, pwd.getpwnam(self.user).pw_gid)
        _scratch.append(path)
        return path

    def write(self, name, text):
        path = os.path.join(self.top, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return path

    def other_user(self):
        return self.user is not None and os.geteuid() == 0

    def by(self):
        """What begins a command line that the server's user is to run."""
        group = str(pwd.getpwnam(self.user).pw_gid) if self.other_user() else ""
        return ["setpriv", "--reuid", self.user, "--regid", group, "--clear-groups", "--"] if group else []

    def environment(self):
        return {**self.bench.env, "PATH": search_path()}

    def start(self, argv, side):
        """A child over that side, by the user that it is for."""
        if side == "unet":
            argv = [self.bench.program("tools/unet"), "run", *argv]
        return process.Child([*self.by(), *argv], env=self.environment())

    def __enter__(self):
        try:
            for argv, ports in self.commands():
                child = self.start(argv, self.side)
                self.children.append(child)
                for port in ports:
                    child.wait_listening(port, 30)
                    self.bench.wait_listening(self.side, child, port, self.by())
            self.prepare()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()
        self.bench.wait_cleared(5, self.by())

    def end(self):
        for child in reversed(self.children):
            child.end(self.end_signal, 10)

    def commands(self):
        """(command line, the ports that it listens on) of each program, in the order in which they start."""
        raise NotImplementedError

    def prepare(self):
        """Before the first load."""


# ---- one load, and what comes of it ----

def one(bench, server, load, side, apart):
    """Runs a load against a server that runs. Requests a second, and what each cost; processes `apart` have no part in it."""
    others = set(process.descendants())
    before, segments, began = process.tree_cpu(apart), host.kernel_segments(), time.monotonic()
    requests = max(round(load.count * bench.seconds), 1)
    client = server.start(load.client(server, requests), SIDES[side].client)
    try:
        text = client.finish(bench.seconds * 60 + 240)
    finally:
        client.end()
    took = time.monotonic() - began
    while time.monotonic() < began + took + 2 and not others >= set(process.descendants()):
        time.sleep(0.02)                # whom the server made for this client ends, and then its time is counted
    cpu = process.cpu_between(before, process.tree_cpu(apart)) + client.cpu_seconds() * 1e9
    values = {"requests": requests, **load.read(text, server), "kernel_segments": host.kernel_segments() - segments}
    values["cpu_us"] = cpu / 1e3 / values["requests"]
    return {name: round(value, 3) for name, value in values.items()}


def not_accelerated(runs):
    """What went by the kernel: a segment for every tenth request, or more."""
    return sorted({r["measurement"] for r in runs
                   if r["side"] == "unet" and r["values"]["kernel_segments"] > max(r["values"]["requests"] / 10, 100)})
