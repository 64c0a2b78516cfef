"""What the tests of the unet command beside live stacks have in common."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from ports import free_port  # noqa: E402
from waiting import LIMIT, wait_until  # noqa: E402

UNET = os.path.join(os.environ["UNET_BUILD"], "tools", "unet")


def unet(*args, ok=(0,), **more):
    """Runs a subcommand to its end and returns its output."""
    done = subprocess.run([UNET, *args], capture_output=True, timeout=LIMIT, check=False, **more)
    if done.returncode not in ok:
        raise AssertionError(f"unet {' '.join(args)}: exit status {done.returncode}\n{done.stdout.decode()}"
                             f"{done.stderr.decode()}")
    return done.stdout.decode()


def look(*args):
    return json.loads(unet(*args, "--json", ok=(0, 1)) or "null")


class Beside(unittest.TestCase):
    domains = 0

    def setUp(self):
        Beside.domains += 1                       # each its own: what the last one's programs left may take its time to go
        os.environ["UNET_DOMAIN"] = f"live-{os.getpid()}-{Beside.domains}"
        self.children = []
        self.scratch = tempfile.TemporaryDirectory()
        self.port = free_port()

    def tearDown(self):
        result = self._outcome.result           # before Python 3.11 what went wrong is in `errors`
        if (any(error for _, error in getattr(self._outcome, "errors", [])) or
                any(self.id() in test.id() for test, _ in result.failures + result.errors)):
            self.report()
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(LIMIT)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        self.scratch.cleanup()

    def report(self):
        """What is needed to understand a failure where nobody can look."""
        print(f"\n--- {self.id()}, load {os.getloadavg()}", file=sys.stderr)
        for child in self.children:
            status = child.poll()
            print(f"{' '.join(child.args)}: {'still runs' if status is None else f'status {status}'}", file=sys.stderr)
        for name in sorted(os.listdir(self.scratch.name)):
            with open(self.file(name), "rb") as f:
                print(f"{name}, {os.fstat(f.fileno()).st_size} bytes, the last:", file=sys.stderr)
                f.seek(-min(2000, os.fstat(f.fileno()).st_size), os.SEEK_END)
                print(re.sub(r"[^\t\n -~]", ".", f.read().decode(errors="replace")), file=sys.stderr)
        for command in (("status",), ("ss",), ("stat",)):
            print(f"unet {command[0]}:\n{unet(*command, ok=(0, 1))}", file=sys.stderr)

    def file(self, name):
        return os.path.join(self.scratch.name, name)

    @staticmethod
    def lines(path):
        with open(path, encoding="utf-8") as f:
            return f.readlines()

    def start(self, *argv, stdin=subprocess.DEVNULL, stdout=None):
        """A program over U-Net; what it writes is a file, shown when the test fails."""
        return self.popen("run", *argv, stdin=stdin, stdout=stdout)

    def popen(self, *argv, stdin=subprocess.DEVNULL, stdout=None):
        said = self.file(f"{len(self.children)}-{'-'.join(argv[:2]).replace('/', '-')}")
        with open(said + ".out", "wb") as out, open(said + ".err", "wb") as err:
            child = subprocess.Popen([UNET, *argv], stdin=stdin, stdout=stdout or out, stderr=err)
        child.said = said
        self.children.append(child)
        return child

    def listener(self):
        rows = look("ss", "--listening") or []
        return next((r for r in rows if r["local"].endswith(f":{self.port}")), None)

    def start_iperf3_server(self):
        server = self.start("iperf3", "-s", "-p", str(self.port))
        wait_until("a listener", self.listener)
        return server

    def start_iperf3_client(self, *options):
        return self.start("iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-t", "600", *options)

    def sending(self):
        """Connections under way towards the server's port that have sent something."""
        rows = look("ss", "--tcp") or []
        return [r for r in rows if r["peer"].endswith(f":{self.port}") and r["state"] == "ESTABLISHED"
                and r["bytes_acked"] > 1000000]

    @staticmethod
    def quiet(stack, now):
        """The counters when nothing seems to go on any more."""
        last = [now()]

        def same():
            time.sleep(0.5)
            last.append(now())
            return last[-1] == last[-2]

        wait_until(f"quiet in stack {stack}", same)
        return last[-1]

    def events(self, child):
        """What it has told so far, whole lines."""
        return [json.loads(line) for line in self.lines(child.said + ".out") if line.endswith("\n")]
