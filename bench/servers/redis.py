"""Redis: one thread that polls, asked by one thread that polls."""

from harness.server import Load, Server, found


def _benchmark(clients, *options):
    return lambda server, n: ["redis-benchmark", "-p", str(server.port), "-c", str(clients), "-n", str(n), "-t", "get", "--csv",
                              *options]


def _read(text, _server):
    fields = r'^"GET"' + r',"[\d.]+"' * 3
    return {"rate": found(r'^"GET","([\d.]+)"', text), "p50_us": found(fields + r',"([\d.]+)"', text) * 1e3,
            "p99_us": found(fields + r',"[\d.]+"' * 2 + r',"([\d.]+)"', text) * 1e3}


class Redis(Server):
    name, programs = "redis", ("redis-server", "redis-benchmark")
    loads = [
        Load("redis get, 1 client", 20000, _benchmark(1), _read),
        Load("redis get, 50 clients", 120000, _benchmark(50), _read),
        Load("redis get, 50 clients, 16 at once", 1000000, _benchmark(50, "-P", "16"), _read),
    ]

    def commands(self):
        return [(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.top], [self.port])]
