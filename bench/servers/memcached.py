"""memcached: a few threads that poll. It is asked by threads that block."""

from harness.server import Load, Server
from .streams import asked, read_exchange

VALUE = "v" * 100
SET = f"set key 0 0 {len(VALUE)}\r\n{VALUE}\r\n"
STORED = "STORED\r\n"
GET = "get key\r\n"
GOT = f"VALUE key 0 {len(VALUE)}\r\n{VALUE}\r\nEND\r\n"


def _pair(threads, count):
    return [Load(f"memcached {name}, {threads} threads", count, asked(threads, request, len(answer)), read_exchange)
            for name, request, answer in (("get", GET, GOT), ("set", SET, STORED))]


class Memcached(Server):
    name, programs, user = "memcached", ("memcached",), "nobody"
    loads = [*_pair(1, 15000), *_pair(16, 60000), *_pair(50, 60000)]

    def commands(self):
        return [(["memcached", "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "2"], [self.port])]

    def prepare(self):
        client = self.start(asked(1, SET, len(STORED))(self, 1), self.side)
        try:
            client.finish(20)
        finally:
            client.end()
