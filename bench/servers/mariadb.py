"""MariaDB: a thread for each connection."""

import os
import re
import subprocess

from harness.server import Load, Server, found, percentiles, search_path

ROWS = 10000


def _sysbench(threads, *command):
    return lambda server, n: ["sysbench", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}", "--mysql-user=root",
                              "--mysql-db=mysql", f"--table-size={ROWS}", f"--threads={threads}", f"--events={n}", "--time=0",
                              "--histogram=on", "oltp_point_select", *(command or ("run",))]


def _read(text, _server):
    histogram = [(float(ms) * 1e3, int(n)) for ms, n in re.findall(r"^ +([\d.]+) \|\S* +(\d+)$", text, re.M)]
    return {"rate": found(r"transactions: +\d+ +\(([\d.]+) per sec", text),
            "requests": found(r"transactions: +(\d+)", text), **percentiles(histogram)}


class Mariadb(Server):
    name, programs, user = "mariadb", ("mariadbd", "mariadb-install-db", "sysbench"), "nobody"
    loads = [
        Load("mariadb 1", 10000, _sysbench(1), _read),
        Load("mariadb 16", 20000, _sysbench(16), _read),
        Load("mariadb 100", 20000, _sysbench(100), _read),
    ]
    data, filled = None, False

    def commands(self):
        if Mariadb.data is None:
            Mariadb.data = self.make_data()
        return [(["mariadbd", "--no-defaults", f"--datadir={self.data}", f"--port={self.port}", "--bind-address=127.0.0.1",
                  f"--socket={self.top}/socket", f"--pid-file={self.top}/pid", "--skip-grant-tables", "--skip-name-resolve",
                  "--max-connections=400"], [self.port])]

    def make_data(self):
        data = os.path.join(self.scratch(), "data")
        subprocess.run([*self.by(), "mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db",
                                     "--auth-root-authentication-method=normal"], check=True, cwd="/",
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PATH": search_path()})
        return data

    def prepare(self):
        if not Mariadb.filled:
            subprocess.run(_sysbench(1, "prepare")(self, 1), check=True, env=self.environment(), capture_output=True)
            Mariadb.filled = True
