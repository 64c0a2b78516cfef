"""The machine: what it is, which two cores to use, and a network namespace of our own to measure in."""

import ctypes
import os
import platform
import random
import shutil
import socket
import subprocess
import sys

INSIDE = "UNET_COMPARE_INSIDE"

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4


def become_subreaper():
    """Daemons that our children start become our children, so that each is known, measured and ended by pid."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_namespace():
    """Starts this program anew in a network namespace of its own, where the machine allows it.

    There the ports are free, the kernel's counters are ours alone, and a route pins every kernel connection to cubic,
    whatever the machine's default is, without changing anything outside.
    """
    if INSIDE in os.environ:
        return
    flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps", "--net"]
    unshare = shutil.which("unshare")
    works = unshare and shutil.which("ip") and subprocess.run(
        [unshare, *flags, "ip", "link", "set", "lo", "up"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, timeout=10, check=False).returncode == 0
    os.environ[INSIDE] = "namespace" if works else "in place"
    if works:
        os.execv(unshare, [unshare, *flags, sys.executable, *sys.argv])


def set_up_namespace():
    """True when we are in a namespace of our own and it is ready; privileges it gave are then dropped."""
    if os.environ.get(INSIDE) != "namespace":
        return False
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 10}
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, **quiet)
    for prefix in ("127.0.0.0/8", "127.0.0.1"):
        subprocess.run(["ip", "route", "replace", "local", prefix, "dev", "lo", "table", "local", "proto", "kernel",
                        "scope", "host", "src", "127.0.0.1", "congctl", "cubic"], check=False, **quiet)
    if os.geteuid() != 0:
        _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    return True


def may_set_cubic():
    """Whether a plain process may ask for cubic by socket option (iperf3 -C)."""
    try:
        with socket.socket() as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        return True
    except OSError:
        return False


def _read(path, default=""):
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return default


def pick_cores():
    """Two allowed CPUs on different cores of one package, server's first; the same one twice if there is only one."""
    cpus = sorted(os.sched_getaffinity(0))
    topo = {c: (_read(f"/sys/devices/system/cpu/cpu{c}/topology/physical_package_id", "0"),
                _read(f"/sys/devices/system/cpu/cpu{c}/topology/core_id", str(c))) for c in cpus}
    first = cpus[0]
    for other in cpus[1:]:
        if topo[other][0] == topo[first][0] and topo[other] != topo[first]:
            return first, other
    return first, cpus[-1]


def describe():
    """The machine as the results should name it."""
    model = next((line.split(":", 1)[1].strip() for line in _read("/proc/cpuinfo").splitlines()
                  if line.startswith("model name")), platform.machine())
    mem_kb = int(next((line.split()[1] for line in _read("/proc/meminfo").splitlines()
                       if line.startswith("MemTotal")), 0))
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(mem_kb / 1e6, 1),
        "kernel": platform.release(),
        "virtual": "hypervisor" in _read("/proc/cpuinfo"),
        "loadavg": _read("/proc/loadavg").split(" ")[0],
    }


def kernel_segments():
    """TCP segments and UDP datagrams that the kernel carried in this namespace so far."""
    total = 0
    head = {}
    for line in _read("/proc/net/snmp").splitlines():
        name, *fields = line.split()
        if name not in head:
            head[name] = fields
            continue
        row = dict(zip(head[name], fields))
        total += int(row.get("OutSegs", 0)) if name == "Tcp:" else 0
        total += int(row.get("OutDatagrams", 0)) if name == "Udp:" else 0
    return total


def free_port(rng=random.Random(os.getpid())):
    """A TCP and UDP port nobody has bound, below the ephemeral range."""
    for _ in range(200):
        port = rng.randrange(15000, 30000)
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as s:
                    s.bind(("0.0.0.0", port))
            return port
        except OSError:
            continue
    raise RuntimeError("no free port found")


def listening(port):
    """Whether the kernel has a TCP listener on this port (the shim's listeners have one too)."""
    want = f":{port:04X}"
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _read(path).splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(want) and fields[3] == "0A":
                return True
    return False


def bound(port):
    """Whether the kernel has a UDP socket on this port."""
    return any(line.split()[1].endswith(f":{port:04X}") for line in _read("/proc/net/udp").splitlines()[1:])
