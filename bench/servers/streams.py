"""Requests and responses, streams and round trips, by programs that measure nothing else. Of a stream a request is 1 MB of 2^20."""

import json

from harness.server import Load, Server, found

MB = 1 << 20


# ---- bench/exchange: threads that block at both ends ----

def asked(threads, request, answer, *options, door=0):
    return lambda server, n: [server.bench.program("bench/exchange"), "client", str(server.ports[door]), str(threads),
                              str(max(n, threads)), request, str(answer), *options]


def read_exchange(text, _server):
    told = json.loads(text.strip().splitlines()[-1])
    return {"rate": told["rate"], "requests": told["exchanges"], "p50_us": told["p50_us"], "p99_us": told["p99_us"]}


class Exchange(Server):
    name, doors, sizes = "request and response", 2, (1, 65536)
    loads = [
        Load("1 byte for 1", 20000, asked(1, "x", 1), read_exchange),
        Load("65,536 bytes for 1", 15000, asked(1, "x", 65536, door=1), read_exchange),
        Load("1 byte for 1, closed", 8000, asked(1, "x", 1, "each"), read_exchange),
        Load("65,536 bytes for 1, closed", 6000, asked(1, "x", 65536, "each", door=1), read_exchange),
    ]

    def commands(self):
        doors = [str(v) for pair in zip(self.ports, self.sizes) for v in pair]
        return [([self.bench.program("bench/exchange"), "server", *doors], self.ports)]


# ---- nuttcp: buffers that are smaller than what is written ----

def _nuttcp(server, n):
    return ["nuttcp", "-t", "-P", str(server.port), "-p", str(server.ports[1]), "-w100", "-l1m", f"-n{n}", "-fparse", "127.0.0.1"]


def _read_nuttcp(text, _server):
    return {"rate": found(r"rate_Mbps=([\d.]+)", text) * 1e6 / 8 / MB}


class Nuttcp(Server):
    name, programs, doors = "nuttcp", ("nuttcp",), 2
    loads = [Load("nuttcp, buffers of 100 KB, MB", 4000, _nuttcp, _read_nuttcp)]

    def commands(self):
        return [(["nuttcp", "-S", "--nofork", "-P", str(self.port)], [self.port])]


# ---- iperf3 and sockperf, as they come ----

def _iperf(server, n):
    return ["iperf3", "-c", "127.0.0.1", "-p", str(server.port), "-n", f"{n}M", "-J"]


def _read_iperf(text, _server):
    return {"rate": json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8 / MB}


class Iperf(Server):
    name, programs = "iperf3", ("iperf3",)
    loads = [Load("iperf3, MB", 5000, _iperf, _read_iperf)]

    def commands(self):
        return [(["iperf3", "-s", "-p", str(self.port)], [self.port])]


SOCKPERF_MOST = 1500000         # messages a second that it has room for


def _sockperf(server, _n):
    seconds = max(round(server.bench.seconds), 1)
    return ["sockperf", "pp", "--tcp", "-i", "127.0.0.1", "-p", str(server.port), "-m", "14", "-t", str(seconds), "--full-rtt",
            f"--mps={SOCKPERF_MOST}"]


def _read_sockperf(text, _server):
    got = found(r"ReceivedMessages=(\d+)", text)
    return {"rate": got / found(r"\[Total Run\] RunTime=([\d.]+)", text), "requests": got,
            "p50_us": found(r"percentile 50\.000 =\s*([\d.]+)", text), "p99_us": found(r"percentile 99\.000 =\s*([\d.]+)", text)}


class Sockperf(Server):
    name, programs = "sockperf", ("sockperf",)
    loads = [Load("sockperf ping-pong", 1, _sockperf, _read_sockperf)]

    def commands(self):
        return [(["sockperf", "sr", "--tcp", "-i", "127.0.0.1", "-p", str(self.port)], [self.port])]
