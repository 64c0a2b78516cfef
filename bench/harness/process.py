"""Child processes: each has a time limit, a core, a record of what it cost, and an end."""

import os
import select
import signal
import subprocess
import tempfile
import time

from . import host


PATIENCE = float(os.environ.get("UNET_BENCH_PATIENCE", "1"))    # times as long for a child to end: on a busy machine


class Failed(Exception):
    """A child did not do what it was started for; the text says which, how, and shows its last output."""


class Child:
    """One program. Output goes to a file, so that nobody waits for us to read it."""

    def __init__(self, argv, cpu=None, env=None, interactive=False):
        self.argv = argv
        self.out = tempfile.TemporaryFile()
        self.rusage = None
        self.status = None

        def set_up():
            signal.signal(signal.SIGINT, signal.SIG_IGN)    # ^C is for us; we end children ourselves
            if cpu is not None:
                os.sched_setaffinity(0, {cpu})

        self.popen = subprocess.Popen(                      # pylint: disable=consider-using-with
            argv, stdin=subprocess.PIPE if interactive else subprocess.DEVNULL, stdout=self.out,
            stderr=subprocess.STDOUT, env=env, preexec_fn=set_up, text=True)
        self.pid = self.popen.pid
        self.pidfd = os.pidfd_open(self.pid)
        _running[self.pid] = self

    def wait(self, seconds):
        """True when it has ended within that time; its status and cost are then known."""
        if self.status is not None:
            return True
        ready, _, _ = select.select([self.pidfd], [], [], max(0, seconds))
        if not ready:
            return False
        _, status, self.rusage = os.wait4(self.pid, 0)
        self.status = self.popen.returncode = os.waitstatus_to_exitcode(status)
        os.close(self.pidfd)
        if self.popen.stdin:
            self.popen.stdin.close()
        del _running[self.pid]
        return True

    def end(self, first=signal.SIGTERM, seconds=1.0):
        """Ends it if it still runs: asked first, killed after that time."""
        if self.wait(0):
            return
        for sig in (first, signal.SIGKILL):
            signal.pidfd_send_signal(self.pidfd, sig)
            if self.wait(seconds):
                return

    def output(self):
        out = self.out.fileno()         # not by seek(): the program writes at the offset that it shares with us
        return os.pread(out, os.fstat(out).st_size, 0).decode(errors="replace")

    def cpu_seconds(self):
        return self.rusage.ru_utime + self.rusage.ru_stime

    def finish(self, seconds):
        """Its output, once it has ended well."""
        name = " ".join(os.path.basename(a) if i == 0 else a for i, a in enumerate(self.argv))
        if not self.wait(seconds * PATIENCE):
            self.end()
            raise Failed(f"no end after {seconds:.0f} s: {name}\n{_tail(self.output())}")
        if self.status != 0:
            raise Failed(f"exit status {self.status}: {name}\n{_tail(self.output())}")
        return self.output()

    def say(self, line):
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def wait_for(self, text, seconds):
        """Waits until its output holds the text."""
        deadline = time.monotonic() + seconds * PATIENCE
        while text not in self.output():
            if self.wait(0.02):
                break
            if time.monotonic() > deadline:
                raise Failed(f"\"{text}\" did not come: {' '.join(self.argv)}\n{_tail(self.output())}")
        if text not in self.output():
            raise Failed(f"ended with {self.status}: {' '.join(self.argv)}\n{_tail(self.output())}")

    def wait_listening(self, port, seconds=10):
        """Waits until somebody listens on the port."""
        deadline = time.monotonic() + seconds * PATIENCE
        while not host.listening(port):
            if self.wait(0.01):
                raise Failed(f"ended with {self.status}: {' '.join(self.argv)}\n{_tail(self.output())}")
            if time.monotonic() > deadline:
                raise Failed(f"nobody listens on {port}: {' '.join(self.argv)}")


_running = {}


def _tail(text, lines=12):
    return "\n".join("    " + line for line in text.strip().splitlines()[-lines:])


def end_all():
    """Ends every child that is left; those started last first."""
    for child in reversed(list(_running.values())):
        child.end()


def _stat_fields(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        text = f.read()
    name = text[text.index("(") + 1:text.rindex(")")]
    rest = text[text.rindex(")") + 2:].split()
    return name, rest[0], int(rest[1])


def descendants():
    """{pid: name} of every live process below us, daemons included (we are their subreaper)."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                name, state, ppid = _stat_fields(entry)
                if state not in "ZX":
                    parents[int(entry)] = (ppid, name)
            except (OSError, ValueError):
                continue
    found = {}
    grown = True
    while grown:
        grown = False
        for pid, (ppid, name) in parents.items():
            if pid not in found and (ppid == os.getpid() or ppid in found):
                found[pid] = name
                grown = True
    return found


def daemons():
    """Pids of unetd and its keepers below us."""
    return [pid for pid, name in descendants().items() if pid not in _running and name.startswith("unet")]


def end_daemons():
    """Ends the daemons that our children left behind, and reaps what there is to reap."""
    pids = daemons()
    for sig in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass
        for _ in range(50):
            reap()
            pids = [p for p in pids if os.path.exists(f"/proc/{p}")]
            if not pids:
                return
            time.sleep(0.02)


def reap():
    """Collects daemons that have ended. Children of our own are collected by their owner."""
    for pid in [p for p in _zombies() if p not in _running]:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def _zombies():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                _, state, ppid = _stat_fields(entry)
            except (OSError, ValueError):
                continue
            if state == "Z" and ppid == os.getpid():
                yield int(entry)


def cpu_ns(pids):
    """Nanoseconds that all threads of these processes have run (schedstat: exact, not sampled)."""
    total = 0
    for pid in pids:
        try:
            for tid in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as f:
                    total += int(f.read().split()[0])
        except OSError:
            continue
    return total


def tree_cpu(apart=()):
    """{pid: (whether it is a child of ours, ns)} of every process below us but those, with what it has waited for."""
    found = {}
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        if pid not in apart:
            waited_for = int(fields[13]) + int(fields[14])      # cutime, cstime
            found[pid] = (int(fields[1]) == os.getpid(), cpu_ns([pid]) + waited_for * 1000000000 // os.sysconf("SC_CLK_TCK"))
    return found


def cpu_between(before, after):
    """Nanoseconds that all of them used between two answers of tree_cpu(). Of a child of ours that ended what it used is not known;
    of another that did, whoever waited for it has all its time."""
    return (sum(ns for _, ns in after.values())
            - sum(ns for pid, (ours, ns) in before.items() if pid in after or not ours))


def pss_bytes(pids):
    """Memory of these processes, shared pages divided among those that map them."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
            total += sum(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
    return total
