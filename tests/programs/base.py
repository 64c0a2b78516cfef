"""What tests of real programs have in common: servers and clients, each over the shim or not, and what the shim says of their sockets."""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD, SOURCE = os.environ["UNET_BUILD"], os.environ["UNET_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests"))
from ports import free_port  # noqa: E402
from waiting import LIMIT, wait_until  # noqa: E402

SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
DATA = random.Random(24).randbytes(3 << 20)
SUM = hashlib.sha256(DATA).hexdigest()
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/usr/lib/postgresql/15/bin"
GAVE_UP = "has given up its user"
SIDES = ((True, True), (True, False), (False, True))    # server and client, over the shim or not


def which(program):
    found = shutil.which(program, path=PATH)
    if not found:
        raise unittest.SkipTest(f"no {program} here")
    return found


class Programs(unittest.TestCase):
    def setUp(self):
        self.port = free_port()
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        self.write("data", DATA)
        self.env = dict(os.environ, PATH=PATH, UNET_LIBEXEC=os.path.join(BUILD, "unetd"), UNET_DOMAIN=f"programs-{os.getpid()}")
        self.servers = []
        self.addCleanup(self.stop)

    def path(self, *name):
        return os.path.join(self.dir, *name)

    def write(self, name, content):
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(self.path(name), mode) as f:
            f.write(content)
        return f.name

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def shimmed(self, shim):
        return dict(self.env, LD_PRELOAD=SHIM, UNET_LOG="1") if shim else self.env

    def stop(self):
        for s in self.servers:
            if s.poll() is None:
                s.terminate()
                try:
                    s.wait(20)
                except subprocess.TimeoutExpired:
                    s.kill()
                    s.wait()
            with contextlib.suppress(ProcessLookupError):       # children that outlive it
                os.killpg(s.pid, signal.SIGKILL)
        self.servers.clear()

    def is_bound(self, kind, state="07"):
        want = f":{self.port:04X}"
        for table in (kind, kind + "6"):
            with open(f"/proc/net/{table}", encoding="ascii") as rows:
                if any(row.split()[1].endswith(want) and row.split()[3] == state for row in rows.readlines()[1:]):
                    return True
        return False

    def listens(self):
        return self.is_bound("tcp", "0A")

    def with_somebody(self):
        """What begins a program in a mount namespace where there is a user `somebody`."""
        for name, row in (("passwd", f"somebody:x:65533:65534::{self.path('home')}:/bin/sh"), ("shadow", "somebody:*:19000:0:99999:7:::")):
            with open(f"/etc/{name}", encoding="utf-8") as f:
                self.write(name, f.read().rstrip("\n") + "\n" + row + "\n")
        mounts = f"mount --bind {self.path('passwd')} /etc/passwd && mount --bind {self.path('shadow')} /etc/shadow"
        if subprocess.run(["unshare", "-m", "sh", "-c", mounts], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("mount namespaces cannot be made here")
        return "unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"

    def start(self, log, *argv, shim=True):
        """In a session of its own: some servers end their process group, which is ours."""
        s = subprocess.Popen(argv, env=self.shimmed(shim), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir,
                             start_new_session=True)
        self.servers.append(s)
        return s

    def serve(self, *argv, shim=True):
        """What it says goes to the file `log`."""
        before = len(self.read("log"))
        with open(self.path("log"), "ab") as log:
            s = self.start(log, *argv, shim=shim)
        wait_until(f"{argv[0]} listens", lambda: self.listens() or s.poll() is not None)
        self.assertTrue(self.listens(), self.read("log"))
        if shim:                        # the kernel's socket listens first; then it is entered on the fabric
            self.await_decision(before)
        return s

    def await_decision(self, before):
        """Until the shim has said what becomes of a listener, where what it says comes to the log."""
        until = time.monotonic() + 5
        while " tcp: " not in self.read("log")[before:] and time.monotonic() < until:
            time.sleep(0.01)

    def serve_at(self, port, *argv, shim=True):
        usual, self.port = self.port, port
        try:
            return self.serve(*argv, shim=shim)
        finally:
            self.port = usual

    @contextlib.contextmanager
    def beside(self, name, *argv, shim=True):
        """One that runs meanwhile; what it prints goes to the file `name`."""
        with open(self.path(name), "wb") as out, open(self.path("log"), "ab") as log:
            p = subprocess.Popen(argv, env=self.shimmed(shim), stdin=subprocess.DEVNULL, stdout=out, stderr=log, cwd=self.dir)
        try:
            yield p
        finally:
            if p.poll() is None:
                p.kill()
                p.wait()

    def client(self, *argv, shim=True):
        """What it prints, and what the shim says of its sockets."""
        p = subprocess.run(argv, env=self.shimmed(shim), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False,
                           cwd=self.dir)
        err = p.stderr.decode(errors="replace")
        self.assertEqual(p.returncode, 0, f"{argv}\n{err}\n{self.read('log')}")
        return p.stdout, err

    def assert_ours(self, err, sides):
        """Where both sides are over the shim, what it says of the client's sockets names one of the stack."""
        self.assertEqual("tcp: ours" in err, all(sides), err[-3000:] + "\n--- the server:\n" + self.read("log")[-3000:])

    def fetch(self, shim, url=None):
        out, err = self.client("curl", "-v", "-sS", "--max-time", "100", url or f"http://127.0.0.1:{self.port}/data", shim=shim)
        self.assertEqual(hashlib.sha256(out).hexdigest(), SUM, err + self.read("log"))
        return err

    def assert_said(self, what):
        self.assertIn(what, self.read("log"))

    def workers(self, server):
        with open(f"/proc/{server}/task/{server}/children", encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]

    def nothing_of_roots(self, pid):
        """It has nothing of its master's stack."""
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                return not any("unet-" in line and "unet-directory" not in line for line in maps)
        except (FileNotFoundError, ProcessLookupError):
            return False

    def settled(self, server, but=()):
        """Its workers, that is, processes that have given up root, none of which is one of `but`."""
        return wait_until("workers", lambda: (v := self.workers(server)) and not set(v) & set(but) and
                          all(self.nothing_of_roots(pid) for pid in v) and v)
