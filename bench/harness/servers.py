"""The servers of bench/programs, and what is asked of them. A server is started once a run and side; its loads come one after
the other, client and server over the same side."""

import glob
import os
import pwd
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections import namedtuple

from . import host, process, report
from .process import Failed

# client(server, n) is the command line that makes n requests; rate(output) what it did a second. Of a run of one second there are
# `count` requests: a number, not a time, so that a busy machine makes a run longer and never void.
Load = namedtuple("Load", "name count client rate quick")

_scratch = []


def clean_up():
    for path in _scratch:
        shutil.rmtree(path, ignore_errors=True)


def scratch():
    path = tempfile.mkdtemp(prefix="unet-programs-")
    os.chmod(path, 0o755)
    _scratch.append(path)
    return path


def found(pattern, text):
    m = re.search(pattern, text, re.M)
    if not m:
        raise Failed(f"no result in the output of the client:\n{text[-600:]}")
    return float(m.group(1))


class Server:
    """A program that listens on self.port until the end of the with statement."""
    name, programs, loads = "", (), ()
    user = None                                 # who runs it and its clients, where we are root

    @classmethod
    def installed(cls):
        return all(shutil.which(p, path=_path()) for p in cls.programs)

    def __init__(self, bench, side):
        self.bench, self.side, self.port, self.child = bench, side, host.free_port(), None

    def as_user(self, argv):
        if self.user is None or os.geteuid() != 0:
            return argv
        group = str(pwd.getpwnam(self.user).pw_gid)
        return ["setpriv", "--reuid", self.user, "--regid", group, "--clear-groups", "--", *argv]

    def start(self, argv):
        """A child over our side, by the user that it is for."""
        if self.side == "unet":
            argv = [self.bench.program("tools/unet"), "run", *argv]
        return process.Child(self.as_user(argv), env={**self.bench.env, "PATH": _path()})

    def __enter__(self):
        self.child = self.start(self.command())
        try:
            self.child.wait_listening(self.port, 30)
            self.prepare()
        except BaseException:
            self.child.end()
            raise
        return self

    def __exit__(self, *_):
        self.child.end(signal.SIGINT)
        self.bench.wait_cleared(5)

    def command(self):
        raise NotImplementedError

    def prepare(self):
        """Before the first load."""


def _path():
    """Debian keeps PostgreSQL's server beside the path."""
    postgres = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
    return ":".join([*postgres, os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


# ---- PostgreSQL: a process for each connection ----

def _pgbench(clients, *options):
    return lambda server, n: ["pgbench", "-h", "127.0.0.1", "-p", str(server.port), "-n", "-S", "-c", str(clients), "-t",
                              str(max(n // clients, 1)), *options, "postgres"]


def _tps(text):
    return found(r"^tps = ([\d.]+)", text)


class Postgres(Server):
    name, programs, user = "postgresql", ("postgres", "initdb", "pgbench"), "postgres"
    loads = [Load(f"postgresql {n}", 24000, _pgbench(n, "-M", "prepared"), _tps, n in (2, 16)) for n in (1, 2, 16, 100, 300)]
    loads.append(Load("postgresql 16, -C", 800, _pgbench(16, "-C"), _tps, False))
    data = None

    @classmethod
    def installed(cls):
        return super().installed() and (os.geteuid() != 0 or cls.user in [u.pw_name for u in pwd.getpwall()])

    def command(self):
        if Postgres.data is None:
            Postgres.data = self.make_data()
        return ["postgres", "-D", self.data, "-p", str(self.port)]

    def make_data(self):
        top = scratch()
        if os.geteuid() == 0:
            shutil.chown(top, self.user, self.user)
        data = os.path.join(top, "data")
        subprocess.run(self.as_user(["initdb", "-D", data, "-A", "trust", "-U", "postgres"]), check=True, cwd="/",
                       stdout=subprocess.DEVNULL, env={**os.environ, "PATH": _path()})
        with open(os.path.join(data, "postgresql.conf"), "a", encoding="ascii") as f:
            f.write("listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 400\n"
                    "shared_buffers = 256MB\nfsync = off\nautovacuum = off\n")
        return data

    def prepare(self):
        env = {**self.bench.env, "PATH": _path(), "PGUSER": "postgres", "PGHOST": "127.0.0.1", "PGPORT": str(self.port)}
        asked = subprocess.run(["psql", "-c", "select 1 from pgbench_branches limit 1", "postgres"], check=False, env=env,
                               capture_output=True)
        if asked.returncode != 0:
            subprocess.run(["pgbench", "-i", "-q", "-s", "10", "postgres"], check=True, env=env, capture_output=True)
        self.bench.env["PGUSER"] = "postgres"


# ---- memcached: a few threads that poll, many clients that block ----

def _memcslap(threads):
    return lambda server, n: ["memcslap", f"--servers=127.0.0.1:{server.port}", f"--concurrency={threads}", "--test=get",
                              f"--execute-number={n // threads}"]


def _memcslap_rate(text):
    line = r"^Time to get +%s keys by +\d+ threads: +%s seconds"
    return found(line % (r"(\d+)", r"[\d.]+"), text) / found(line % (r"\d+", r"([\d.]+)"), text)


class Memcached(Server):
    name, programs, user = "memcached", ("memcached", "memcslap"), "nobody"
    loads = [Load(f"memcached get, {n} threads", 50000, _memcslap(n), _memcslap_rate, n == 16) for n in (1, 16, 50)]

    def command(self):
        return ["memcached", "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "2"]


# ---- Redis ----

def _redis(clients):
    return lambda server, n: ["redis-benchmark", "-p", str(server.port), "-c", str(clients), "-n", str(n), "-t", "get", "-q"]


def _redis_rate(text):
    return found(r"GET: ([\d.]+) requests per second", text)


class Redis(Server):
    name, programs = "redis", ("redis-server", "redis-benchmark")
    loads = [Load(f"redis get, {n} clients", 50000, _redis(n), _redis_rate, n == 50) for n in (1, 50)]

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", scratch()]


# ---- nginx: two workers that share a listener ----

NGINX = """daemon off; worker_processes 2; pid %(top)s/pid; error_log stderr crit; %(user)s
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; client_body_temp_path %(top)s/b; proxy_temp_path %(top)s/p;
  fastcgi_temp_path %(top)s/f; uwsgi_temp_path %(top)s/u; scgi_temp_path %(top)s/s;
  server { listen 127.0.0.1:%(port)d; location / { return 200 "hello\\n"; } } }
"""


def _ab(clients, *options):
    return lambda server, n: ["ab", "-q", "-c", str(clients), "-n", str(n), *options, f"http://127.0.0.1:{server.port}/"]


def _ab_rate(text):
    if found(r"Failed requests: +(\d+)", text) != 0:
        raise Failed("ab: some requests failed\n" + text[-600:])
    return found(r"Requests per second: +([\d.]+)", text)


class Nginx(Server):
    name, programs = "nginx", ("nginx", "ab")
    loads = [Load("nginx, 16 kept", 80000, _ab(16, "-k"), _ab_rate, True), Load("nginx, 16 closed", 12000, _ab(16), _ab_rate, False)]

    def command(self):
        top = scratch()
        with open(os.path.join(top, "nginx.conf"), "w", encoding="ascii") as f:
            f.write(NGINX % {"top": top, "port": self.port, "user": "user root;" if os.geteuid() == 0 else ""})
        return ["nginx", "-p", top, "-e", "stderr", "-c", os.path.join(top, "nginx.conf")]


ALL = (Postgres, Memcached, Redis, Nginx)


# ---- one load, and what comes of it ----

def one(bench, server, load):
    """Runs a load against a server that runs. Requests a second, and what each cost."""
    others = set(process.descendants())
    before, segments, began = process.tree_cpu_ns(), host.kernel_segments(), time.monotonic()
    requests = load.count * bench.seconds
    client = server.start(load.client(server, requests))
    try:
        text = client.finish(bench.seconds * 60 + 240)
    finally:
        client.end()
    took = time.monotonic() - began
    while time.monotonic() < began + took + 2 and not others >= set(process.descendants()):
        time.sleep(0.02)                # whom the server made for this client ends, and then its time is counted
    cpu = process.tree_cpu_ns() - before + client.cpu_seconds() * 1e9
    return {"rate": load.rate(text), "cpu_us": cpu / 1e3 / requests, "kernel_segments": host.kernel_segments() - segments,
            "requests": requests}


def rows(runs):
    """A row for each measurement that both sides made."""
    median, out = report.medians(runs), []
    for name in dict.fromkeys(run["measurement"] for run in runs):
        if (name, "kernel") not in median or (name, "unet") not in median:
            continue
        kernel, unet = median[name, "kernel"], median[name, "unet"]
        ratios = [u["values"]["rate"] / k["values"]["rate"] for k in runs for u in runs
                  if k["measurement"] == u["measurement"] == name and k["run"] == u["run"] and (k["side"], u["side"]) == ("kernel", "unet")]
        out.append({"name": name, "kernel": kernel["rate"], "unet": unet["rate"], "ratio": statistics.median(ratios),
                    "least": min(ratios), "most": max(ratios), "kernel_cpu_us": kernel["cpu_us"], "unet_cpu_us": unet["cpu_us"]})
    return out


def not_accelerated(runs):
    """What went by the kernel: a segment for every tenth request, or more."""
    return sorted({r["measurement"] for r in runs
                   if r["side"] == "unet" and r["values"]["kernel_segments"] > max(r["values"]["requests"] / 10, 1000)})


def table(found_rows):
    head = ("", "kernel/s", "U-Net/s", "ratio", "of", "kernel us", "U-Net us")
    lines = [head] + [(r["name"], f"{r['kernel']:,.0f}", f"{r['unet']:,.0f}", f"{r['ratio']:.2f}", f"{r['least']:.2f} to {r['most']:.2f}",
                       f"{r['kernel_cpu_us']:.1f}", f"{r['unet_cpu_us']:.1f}") for r in found_rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))
                     for line in lines)


def plot(found_rows, path):
    """Draws each row's ratio. False when gnuplot is not there."""
    gnuplot = shutil.which("gnuplot")
    if not gnuplot or not found_rows:
        return False
    terminal = "svg size 1000,560" if path.endswith(".svg") else "png size 1000,560"
    with tempfile.NamedTemporaryFile("w", suffix=".dat", encoding="utf-8") as data:
        for r in found_rows:
            data.write(f"\"{r['name']}\" {r['ratio']} {r['least']} {r['most']}\n")
        data.flush()
        script = f"""
            set terminal {terminal}
            set output '{path}'
            set title 'Requests a second over U-Net, kernel = 1'
            set style fill solid 0.7
            set boxwidth 0.6
            set grid y
            set yrange [0:*]
            set xtics rotate by -30
            set bmargin 11
            plot '{data.name}' using 0:2:xtic(1) with boxes notitle, '' using 0:2:3:4 with yerrorbars notitle, 1 notitle
        """
        done = subprocess.run([gnuplot], input=script, text=True, timeout=30, check=False, stderr=subprocess.PIPE)
    return done.returncode == 0
