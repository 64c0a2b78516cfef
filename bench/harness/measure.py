"""What is measured: each function runs one thing once, over one side, and returns its values by name.

Sides: "kernel" is the loopback as it is, "unet" the same programs under `unet run`, "native" a program written for
<unet/sock.h>, "limit" what the hardware allows between two processes.
"""

import json
import os
import re
import signal
import time

from . import host, process
from .process import Child, Failed


class Bench:
    """Where the programs are and how they are run."""

    def __init__(self, build, seconds, own_namespace):
        self.build = build
        self.seconds = seconds
        self.own_namespace = own_namespace
        self.cubic_option = [] if own_namespace or not host.may_set_cubic() else ["-C", "cubic"]
        self.server_cpu, self.client_cpu = host.pick_cores()
        self.env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", host.INSIDE)}
        self.env["UNET_DOMAIN"] = f"compare-{os.getpid()}"
        self.env["UNET_CONFIG"] = ""            # the defaults are measured

    def program(self, name):
        return os.path.join(self.build, name)

    def has(self, name):
        return os.access(self.program(name), os.X_OK)

    def start(self, side, argv, cpu=None, interactive=False):
        if side == "unet":
            argv = [self.program("tools/unet"), "run", *argv]
        return Child(argv, cpu=cpu, env=self.env, interactive=interactive)

    def drops(self):
        """What `unet stat` says was dropped so far by all stacks, by reason."""
        time.sleep(0.2)                         # what was under way when the client ended has arrived
        child = Child([self.program("tools/unet"), "stat", "--json"], env=self.env)
        try:
            return {why: n for why, n in json.loads(child.finish(10))["drops"].items() if n}
        finally:
            child.end()

    def wait_listening(self, side, server, port, by=()):
        """Waits until the server listens; over U-Net, until the fabric of the user that `by` makes of us knows it too."""
        if side != "native":
            server.wait_listening(port)
        deadline = time.monotonic() + 10 * process.PATIENCE
        while side != "kernel" and port not in self.fabric_ports(by):
            if server.wait(0.01) or time.monotonic() > deadline:
                raise Failed(f"port {port} is not on the fabric: {' '.join(server.argv)}\n{server.output()}")

    def status(self, by=()):
        """What `unet status` says; {} when there is no unetd."""
        child = Child([*by, self.program("tools/unet"), "status", "--json"], env=self.env)
        try:
            return json.loads(child.output()) if child.wait(10) and child.status == 0 else {}
        finally:
            child.end()

    def fabric_ports(self, by=()):
        """Ports that unetd has listeners for."""
        return [item["port"] for item in self.status(by).get("listeners", [])]

    def wait_cleared(self, seconds=20, by=()):
        """Waits until the keeper has finished what ended programs left, so that the next measurement is alone."""
        deadline = time.monotonic() + seconds
        while self.status(by).get("stacks") and time.monotonic() < deadline:
            time.sleep(0.1)


class Cost:
    """CPU that the measured programs and the daemons behind them use between start and total()."""

    def __init__(self):
        self.before = process.cpu_ns(process.daemons())

    def total(self, children):
        return sum(c.cpu_seconds() for c in children) + (process.cpu_ns(process.daemons()) - self.before) / 1e9


def iperf(bench, side, options, pairs=1):
    """iperf3, server and client; with several pairs all at once, not pinned."""
    seconds = bench.seconds
    pin, udp = pairs == 1, "-u" in options
    cost, kernel_before = Cost(), host.kernel_segments()
    servers, clients = [], []
    try:
        for _ in range(pairs):
            port = host.free_port()
            server = bench.start(side, ["iperf3", "-s", *([] if udp else ["-1"]), "-p", str(port)],
                                 bench.server_cpu if pin else None)
            servers.append((port, server))
            bench.wait_listening(side, server, port)
        for port, _ in servers:
            clients.append(bench.start(
                side, ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(seconds), "-J", *options,
                       *([] if udp else bench.cubic_option)], bench.client_cpu if pin else None))
        reports = [json.loads(c.finish(seconds + 20)) for c in clients]
        drops = bench.drops() if udp and side == "unet" else None
        for _, server in servers if not udp else []:
            server.finish(10)
    finally:
        for child in clients + [s for _, s in servers]:
            child.end(signal.SIGINT if udp else signal.SIGTERM)
    for report in reports:
        if "error" in report:
            raise Failed(f"iperf3: {report['error']}")
    children = clients + [s for _, s in servers]
    values = _iperf_udp(reports[0]["end"]) if udp else _iperf_tcp([r["end"] for r in reports])
    if drops is not None:
        values.update(drops=sum(drops.values()), drops_by_reason=drops)
    values["cpu_s_per_gb"] = cost.total(children) / max(values["bytes"] / 1e9, 1e-9)
    values["kernel_segments"] = host.kernel_segments() - kernel_before
    return values


def _iperf_tcp(ends):
    received = [e[k] for e in ends for k in ("sum_received", "sum_received_bidir_reverse") if k in e]
    sent = [e[k] for e in ends for k in ("sum_sent", "sum_sent_bidir_reverse") if k in e]
    return {
        "gbps": sum(s["bits_per_second"] for s in received) / 1e9,
        "bytes": sum(s["bytes"] for s in received),
        "retransmits": sum(s.get("retransmits", 0) for s in sent),
        "congestion": ends[0].get("sender_tcp_congestion", "?"),
    }


def _iperf_udp(end):
    sent, received = end["sum_sent"], end["sum_received"]
    seconds = received["seconds"] or 1
    size = sent["bytes"] / max(sent["packets"], 1)
    delivered = round(received["bytes"] / size) if size else 0
    return {
        "gbps": received["bytes"] * 8 / seconds / 1e9,
        "kpps": delivered / seconds / 1e3,
        "bytes": received["bytes"],
        "sent": sent["packets"],
        "delivered": delivered,
        "lost": sent["packets"] - delivered,
    }


SOCKPERF_MOST = 4000000         # messages a second that it has room for: of its own default, round trips of 1 us meet the end


def sockperf(bench, side, spinning):
    """sockperf ping-pong over TCP, 14 bytes; spinning means non-blocking sockets asked in a loop."""
    port = host.free_port()
    common = ["--tcp", "-i", "127.0.0.1", "-p", str(port), *(["--nonblocked"] if spinning else [])]
    before = host.kernel_segments()
    server = bench.start(side, ["sockperf", "sr", *common], bench.server_cpu)
    try:
        bench.wait_listening(side, server, port)
        client = bench.start(side, ["sockperf", "pp", *common, "-m", "14", "-t", str(bench.seconds), "--full-rtt",
                                     f"--mps={SOCKPERF_MOST}"],
                             bench.client_cpu)
        try:
            text = client.finish(bench.seconds + 20)
        finally:
            client.end()
    finally:
        server.end(signal.SIGINT)
    found = {name: re.search(pattern, text) for name, pattern in
             (("rtt_us", r"percentile 50\.000 =\s*([\d.]+)"), ("mean_us", r"avg-rtt=([\d.]+)"),
              ("p99_us", r"percentile 99\.000 =\s*([\d.]+)"))}
    if not found["rtt_us"]:
        raise Failed("sockperf printed no result:\n" + text[-600:])
    values = {name: float(m.group(1)) for name, m in found.items() if m}
    values["kernel_segments"] = host.kernel_segments() - before
    return values


def json_pair(bench, side, program):
    """One of bench/'s own programs as server and client; the client prints a line of JSON and stops the server."""
    port = host.free_port()
    argv = [bench.program(program)]
    before = host.kernel_segments()
    server = bench.start(side, [*argv, "server", str(port)], bench.server_cpu)
    try:
        bench.wait_listening(side, server, port)
        client = bench.start(side, [*argv, "client", str(port), str(bench.seconds)], bench.client_cpu)
        try:
            values = json.loads(client.finish(bench.seconds + 20).strip().splitlines()[-1])
        finally:
            client.end()
        server.finish(5)
    finally:
        server.end()
    values["kernel_segments"] = host.kernel_segments() - before
    return values


def json_alone(bench, _side, program, *args):
    """A program of bench/ that needs no partner (it makes its own) and prints a line of JSON."""
    child = bench.start("limit", [bench.program(program), *args])
    try:
        return json.loads(child.finish(60).strip().splitlines()[-1])
    finally:
        child.end()


def _many(bench, side, count):
    port = host.free_port()
    argv = [bench.program("bench/many_conns")]
    server = bench.start(side, [*argv, "server", str(port), str(count)])
    bench.wait_listening(side, server, port)
    return server, bench.start(side, [*argv, "client", str(port), str(count)], interactive=True)


def idle(bench, side, seconds=10):
    """CPU that a connected pair, blocked in recv(), and the daemons use while nothing happens."""
    server, client = _many(bench, side, 1)
    try:
        client.wait_for("connected 1", 10)
        time.sleep(3.0)         # a wait looks once more after two seconds, and then sleeps until something comes
        pids = [server.pid, client.pid, *process.daemons()]
        before = process.cpu_ns(pids)
        time.sleep(seconds)
        return {"cpu_ms": (process.cpu_ns(pids) - before) / 1e6, "seconds": seconds, "processes": len(pids)}
    finally:
        client.end()
        server.end()


def memory(bench, side, count):
    """Growth of everybody's memory from one connection to many, a connection; the kernel's own counted apart."""
    server, client = _many(bench, side, count)
    try:
        client.wait_for("connected 1\n", 10)
        time.sleep(0.5)
        pids = [server.pid, client.pid, *process.daemons()]
        before, kernel_before = process.pss_bytes(pids), _kernel_memory()
        client.say("go")
        client.wait_for(f"connected {count}\n", 120)
        time.sleep(0.5)
        grown, kernel_grown = process.pss_bytes(pids) - before, _kernel_memory() - kernel_before
        return {"bytes_per_connection": grown / count, "kernel_bytes_per_connection": kernel_grown / count,
                "connections": count}
    finally:
        client.end()
        server.end()
        bench.wait_cleared()


def _kernel_memory():
    with open("/proc/meminfo", encoding="ascii") as f:
        return sum(int(line.split()[1]) * 1024 for line in f if line.startswith(("Slab:", "Percpu:")))


def interrupt_is_error():
    """^C and SIGTERM both end the run in an orderly way."""
    def stop(_sig, _frame):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
