"""PostgreSQL: a process for each connection."""

import glob
import os
import signal
import subprocess

from harness.server import Load, Server, found, percentiles, search_path


def _pgbench(clients, *options):
    return lambda server, n: ["pgbench", "-h", "127.0.0.1", "-p", str(server.port), "-n", "-S", "-c", str(clients), "-t",
                              str(max(n // clients, 1)), "-l", f"--log-prefix={server.top}/log", *options, "postgres"]


def _read(text, server):
    """The third word of a line of pgbench's log is a transaction's time."""
    times, logs = [], glob.glob(os.path.join(server.top, "log.*"))
    for log in logs:
        with open(log, encoding="ascii") as f:
            times += [int(line.split()[2]) for line in f]
        os.remove(log)
    return {"rate": found(r"^tps = ([\d.]+)", text), "requests": len(times), **percentiles([(us, 1) for us in sorted(times)])}


class Postgres(Server):
    name, programs, user = "postgresql", ("postgres", "initdb", "pgbench"), "postgres"
    loads = [
        Load("postgresql 1", 12000, _pgbench(1, "-M", "prepared"), _read),
        Load("postgresql 2", 20000, _pgbench(2, "-M", "prepared"), _read),
        Load("postgresql 16", 30000, _pgbench(16, "-M", "prepared"), _read),
        Load("postgresql 100", 24000, _pgbench(100, "-M", "prepared"), _read, quick=False),
        Load("postgresql 300", 18000, _pgbench(300, "-M", "prepared"), _read, quick=False),
        Load("postgresql 16, -C", 160, _pgbench(16, "-C"), _read),
    ]
    end_signal = signal.SIGINT                  # whatever connections are open
    data = None

    def environment(self):
        return {**super().environment(), "PGUSER": "postgres", "PGHOST": "127.0.0.1", "PGPORT": str(self.port)}

    def commands(self):
        if Postgres.data is None:
            Postgres.data = self.make_data()
        return [(["postgres", "-D", self.data, "-p", str(self.port)], [self.port])]

    def make_data(self):
        data = os.path.join(self.scratch(), "data")
        subprocess.run([*self.by(), "initdb", "-D", data, "-A", "trust", "-U", "postgres"], check=True, cwd="/",
                       stdout=subprocess.DEVNULL, env={**os.environ, "PATH": search_path()})
        with open(os.path.join(data, "postgresql.conf"), "a", encoding="ascii") as f:
            f.write("listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 400\n"
                    "shared_buffers = 256MB\nfsync = off\nautovacuum = off\n")
        return data

    def prepare(self):
        env = self.environment()
        asked = subprocess.run(["psql", "-c", "select 1 from pgbench_branches limit 1", "postgres"], check=False, env=env,
                               capture_output=True)
        if asked.returncode != 0:
            subprocess.run(["pgbench", "-i", "-q", "-s", "10", "postgres"], check=True, env=env, capture_output=True)
