"""Servers of HTTP: workers that share a listener, a proxy before two others, and workers of Python. ab asks all of them."""

import os
import signal
import time

from harness.process import Failed
from harness.server import Load, Server, found


def _ab(*options):
    return lambda server, n: ["ab", "-q", "-c", "16", "-n", str(max(n, 16)), "-e", f"{server.top}/ab.csv", *options,
                              f"http://127.0.0.1:{server.port}/"]


def _read(text, server):
    if found(r"Failed requests: +(\d+)", text) != 0:
        raise Failed("ab: some requests failed\n" + text[-600:])
    with open(os.path.join(server.top, "ab.csv"), encoding="ascii") as f:
        parts = f.read()
    return {"rate": found(r"Requests per second: +([\d.]+)", text), "requests": found(r"Complete requests: +(\d+)", text),
            "p50_us": found(r"^50,([\d.]+)", parts) * 1e3, "p99_us": found(r"^99,([\d.]+)", parts) * 1e3}


NGINX = """daemon off; worker_processes %(workers)d; pid %(top)s/pid%(port)d; error_log stderr crit; %(user)s
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; client_body_temp_path %(top)s/b; proxy_temp_path %(top)s/p;
  fastcgi_temp_path %(top)s/f; uwsgi_temp_path %(top)s/u; scgi_temp_path %(top)s/s;
  server { listen 127.0.0.1:%(port)d; location / { return 200 "hello\\n"; } } }
"""


def _nginx(server, port, workers):
    conf = server.write(f"nginx{port}.conf", NGINX % {"top": server.top, "port": port, "workers": workers,
                                                      "user": "user root;" if os.geteuid() == 0 else ""})
    return ["nginx", "-p", server.top, "-e", "stderr", "-c", conf], [port]


class Nginx(Server):
    name, programs = "nginx", ("nginx", "ab")
    loads = [Load("nginx, 16 kept", 100000, _ab("-k"), _read), Load("nginx, 16 closed", 20000, _ab(), _read)]

    def commands(self):
        return [_nginx(self, self.port, 2)]


HAPROXY = """global
  maxconn 1000
defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout server 60s
frontend all
  bind 127.0.0.1:%d
  default_backend both
backend both
  server one 127.0.0.1:%d
  server two 127.0.0.1:%d
"""


class Haproxy(Server):
    name, programs, doors = "haproxy before two nginx", ("haproxy", "nginx", "ab"), 3
    loads = [Load("haproxy, two nginx, 16 kept", 30000, _ab("-k"), _read), Load("haproxy, two nginx, 16 closed", 8000, _ab(), _read)]

    def commands(self):
        conf = self.write("haproxy.cfg", HAPROXY % tuple(self.ports))
        return [_nginx(self, self.ports[1], 1), _nginx(self, self.ports[2], 1), (["haproxy", "-db", "-f", conf], [self.port])]


APP = """def app(environ, start):
    start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
    return [b"hello\\n"]
"""


class Gunicorn(Server):
    """Its workers take one request of a connection, and close it."""
    name, programs, options = "gunicorn", ("gunicorn", "ab"), ()
    end_signal = signal.SIGINT                  # at once, whatever connections are open
    loads = [Load("gunicorn, 16 closed", 3000, _ab(), _read)]

    def commands(self):
        self.write("hello.py", APP)
        return [(["gunicorn", "--workers", "2", "--bind", f"127.0.0.1:{self.port}", "--chdir", self.top, *self.options, "hello:app"],
                 [self.port])]

    def prepare(self):
        deadline = time.monotonic() + 30
        while self.children[0].output().count("Booting worker") < 2:
            if time.monotonic() > deadline:
                raise Failed("gunicorn has no two workers\n" + self.children[0].output()[-600:])
            time.sleep(0.01)


class GunicornThreads(Gunicorn):
    name, options = "gunicorn with threads", ("--worker-class", "gthread", "--threads", "8", "--keep-alive", "60")
    loads = [Load("gunicorn with threads, 16 kept", 4000, _ab("-k"), _read)]
