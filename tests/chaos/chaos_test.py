#!/usr/bin/env python3
"""Everything at once over one unetd: forks, execs, sockets in messages, other users, reloads, datagrams; and kill -9 of workers,
clients, holders of ports, the keeper and unetd. Who was not killed, and whose server was not, gets every byte; a port is free
when its holder is gone; at the end nothing is left.

    chaos_test.py [SECONDS]         UNET_SEED chooses the plan (the default is fixed)"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

BUILD, SOURCE = os.environ["UNET_BUILD"], os.environ["UNET_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests"))
from daemons import daemons  # noqa: E402
from ports import free_port  # noqa: E402
from waiting import LIMIT, wait_until  # noqa: E402

WORKER = os.path.join(BUILD, "tests", "chaos", "chaos_worker")
SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 20
SEED = int(os.environ.get("UNET_SEED", 27))

os.environ.setdefault("UNET_LIBEXEC", os.path.join(BUILD, "unetd"))
DOMAIN = os.environ["UNET_DOMAIN"] = f"chaos-{os.getpid()}"

BETWEEN = 3                             # s, from the death of unetd or a keeper to the next of a keeper, and to unetd's

killed = set()                          # workers, and whoever served somebody
plan = []                               # what was done, for a report


def group_of(pid):
    """The process group of a process that has not ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            state, _, group = f.read().rpartition(")")[2].split()[:3]
    except OSError:
        return None
    return int(group) if state not in "ZX" else None


class Worker:
    def __init__(self, *args, shim=True):
        self.args, self.shim, self.dead = args, shim, False
        self.files = [tempfile.TemporaryFile() for _ in range(2)]
        env = dict(os.environ, LD_PRELOAD=SHIM, UNET_LOG="1") if shim else None
        self.child = subprocess.Popen((WORKER, *map(str, args)), stdin=subprocess.DEVNULL, stdout=self.files[0],
                                      stderr=self.files[1], env=env, start_new_session=True)
        self.pid = self.child.pid

    def text(self, which=0):
        out = self.files[which].fileno()
        return os.pread(out, os.fstat(out).st_size, 0).decode(errors="replace")

    def runs(self):
        return self.child.poll() is None

    def ready(self):
        wait_until(f"{self} is ready", lambda: "ready" in self.text() or not self.runs())
        assert self.runs(), f"{self} ended: {self.shown()}"
        return self

    def group_is_gone(self):
        """All have ended. Whether init has heard of it is not asked: that may take it seconds."""
        self.child.poll()
        return not any(group_of(pid) == self.pid for pid in filter(str.isdigit, os.listdir("/proc")))

    def kill(self):
        """All of its processes; returns when there is none."""
        self.dead = True
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        wait_until(f"{self} is gone", self.group_is_gone)

    def __str__(self):
        return " ".join(map(str, self.args)) + f" (pid {self.pid}{', shim' if self.shim else ''})"

    def shown(self):
        return f"{self}, status {self.child.poll()}:\n{self.text()[-1500:]}\n{self.text(1)[-3000:]}"


class Chaos:
    def __init__(self):
        self.random = random.Random(SEED)
        self.all = []
        self.tcp, self.udp, self.spare = free_port(), free_port(), free_port()
        self.server = self.start("serve", self.tcp, 3).ready()
        self.echo = self.start("echo", self.udp).ready()
        self.old = []
        self.killed_last = "", 0

    def start(self, *args, shim=True):
        w = Worker(*args, shim=shim)
        self.all.append(w)
        return w

    def asking(self, what):
        return [w for w in self.all if w.args[0] == what and w.runs()]

    def do(self, what, detail=""):
        plan.append(f"{time.monotonic() - self.began:7.2f} {what} {detail}")

    # ---- steps ----

    def ask(self):
        if len(self.asking("ask")) < 5:
            w = self.start("ask", self.tcp, self.random.randrange(1 << 30), self.random.randrange(1, 6), shim=self.random.random() < 0.8)
            self.do("ask", w)

    def tell(self):
        if len(self.asking("tell")) < 2:
            self.do("tell", self.start("tell", self.udp, self.random.randrange(1 << 30), self.random.randrange(1, 200)))

    def kill_worker(self):
        pids = [int(n) for n in re.findall(r"worker (\d+)", self.server.text())]
        pid = self.random.choice(pids[-3:]) if pids else None
        if pid and pid not in killed:
            killed.add(pid)
            self.do("kill worker", pid)
            os.kill(pid, signal.SIGKILL)

    def kill_client(self):
        some = self.asking("ask") + self.asking("tell")
        if some:
            w = self.random.choice(some)
            self.do("kill", w)
            w.kill()

    def kill_daemon(self, name):
        """What unetd and a keeper both know goes when they die at once (docs/features.md): each has time to tell the other. And
        unetd gives up a keeper that dies more than five times in ten seconds."""
        last, when = self.killed_last
        if time.monotonic() - when < BETWEEN and (last, name) != ("unetd", "unetd"):
            return
        self.killed_last = name, time.monotonic()
        for pid in daemons(name):
            self.do("kill " + name, pid)
            os.kill(pid, signal.SIGKILL)

    def reload(self):
        old, self.server = self.server, self.start("serve", self.tcp, 3)
        self.do("reload", f"{old} -> {self.server}")
        self.server.ready()
        os.kill(old.pid, signal.SIGTERM)
        self.old.append(old)

    def restart_echo(self):
        """Beside datagrams on their way."""
        self.echo.kill()
        self.echo = self.start("echo", self.udp)
        self.do("restart", self.echo)
        self.echo.ready()

    def hold(self):
        kind, reuse = self.random.choice(("udp", "tcp")), self.random.randrange(2)
        for i in range(3):
            w = self.start("hold", kind, self.spare, reuse if i else 1 - reuse)
            self.do("hold", w)
            w.ready().kill()

    STEPS = ((ask, 8), (tell, 3), (kill_worker, 3), (kill_client, 1), (lambda c: c.kill_daemon("unet-keeper"), 1),
             (lambda c: c.kill_daemon("unetd"), 1), (reload, 1), (restart_echo, 2), (hold, 2))

    def run(self):
        self.began = time.monotonic()
        steps, weights = zip(*self.STEPS)
        while time.monotonic() - self.began < SECONDS:
            self.random.choices(steps, weights)[0](self)
            self.judge()
            time.sleep(self.random.random() * 0.1)

    # ---- what must be true ----

    def judge(self):
        for w in list(self.all):
            if w.runs() or w.args[0] not in ("ask", "tell", "hold"):
                continue
            self.all.remove(w)
            if not w.dead:
                self.judge_client(w)

    def judge_client(self, w):
        lines = w.text().splitlines()
        assert w.child.returncode == 0 and lines and lines[-1] == "done", f"not done: {w.shown()}"
        for line in lines:
            broken = re.match(r"broken (-?\d+) (\w+)", line)
            assert not broken or (int(broken[1]) in killed and broken[2] not in ("WRONG", "SILENT", "MORE")), f"{line}: {w.shown()}"

    def finish(self):
        wait_until("those that ask", lambda: not self.asking("ask") and not self.asking("tell"))
        self.judge()
        for w in (*self.old, self.server):
            if w is self.server:
                os.kill(w.pid, signal.SIGTERM)
            wait_until(f"{w} ends", lambda w=w: not w.runs())
            assert w.group_is_gone(), w.shown()
        self.echo.kill()

    def nothing_is_left(self):
        wait_until("unetd and its keeper to leave", lambda: not daemons("unetd") and not daemons("unet-keeper"))
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
            assert DOMAIN not in f.read(), "abstract names are left"
        for kind in ("tcp", "udp"):
            with open(f"/proc/net/{kind}", encoding="ascii") as f:
                for port in (self.tcp, self.udp, self.spare):
                    rows = [r for r in f if re.match(rf"\s*\d+: \w+:{port:04X} \w+:\w+ (?!06)", r)]
                    assert not rows, rows

    def report(self):
        print(f"seed {SEED}; the plan, from {self.began:.2f} on:", *plan[-200:], sep="\n")
        for w in self.all:
            if w.runs() or w in (self.server, self.echo):
                print(w.shown())
        print("killed:", sorted(killed))
        tool = os.path.join(BUILD, "tools", "unet")
        for verb in ("status", "ss"):
            done = subprocess.run((tool, verb), capture_output=True, text=True, timeout=LIMIT, check=False)
            print(done.stdout + done.stderr)

    def end(self):
        for w in self.all:
            w.kill()


def main():
    print(f"seed {SEED}, {SECONDS:g} s", flush=True)
    chaos = Chaos()
    try:
        chaos.run()
        chaos.finish()
        chaos.nothing_is_left()
    except BaseException:
        chaos.report()
        raise
    finally:
        chaos.end()
    print(f"{len(plan)} steps, {len(killed)} workers killed")
    print("[  PASSED  ] 1 test(s).")


if __name__ == "__main__":
    main()
