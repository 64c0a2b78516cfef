#!/usr/bin/env python3
"""nginx, Node's http and cluster, and Java's channels: web servers of several processes and threads, and who asks them."""

import hashlib
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from ports import free_port  # noqa: E402
from programs.base import LIMIT, SIDES, SOURCE, SUM, Programs, which  # noqa: E402

HERE = os.path.join(SOURCE, "tests", "programs")


class Nginx(Programs):
    def test_sendfile_and_tls(self):
        """Two workers of root's, where we are root: they keep their stack."""
        which("openssl")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                        "-keyout", self.path("key"), "-out", self.path("cert")], check=True, capture_output=True, timeout=LIMIT)
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port, secure = free_port(), free_port()
                self.write("conf", f"""
                    {"user root;" if os.geteuid() == 0 else ""} daemon off; worker_processes 2; pid {self.path("pid")};
                    error_log stderr; events {{}}
                    http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {self.path("t1")};
                           proxy_temp_path {self.path("t2")}; fastcgi_temp_path {self.path("t3")}; uwsgi_temp_path {self.path("t4")};
                           scgi_temp_path {self.path("t5")}; ssl_certificate {self.path("cert")}; ssl_certificate_key {self.path("key")};
                           server {{ listen 127.0.0.1:{self.port}; listen 127.0.0.1:{secure} ssl; root {self.dir}; }} }}""")
                s = self.serve(which("nginx"), "-c", self.path("conf"), "-p", self.dir, "-e", "stderr", shim=server)
                self.assert_ours(self.fetch(client), (server, client))
                for _ in range(3):
                    out, err = self.client("curl", "-k", "-sS", "--max-time", "100", f"https://127.0.0.1:{secure}/data", shim=client)
                    self.assertEqual(hashlib.sha256(out).hexdigest(), SUM, err)
                self.assert_ours(err, (server, client))
                s.terminate()
                self.assertEqual(s.wait(LIMIT), 0, self.read("log"))


class Language(Programs):
    """A server and a client in one file, which take `serve PORT` and `ask PORT`."""

    def each_side(self, *program):
        for server, client in SIDES:
            with self.subTest(server=server, client=client):
                self.port = free_port()
                s = self.serve(*program, "serve", str(self.port), shim=server)
                out, err = self.client(*program, "ask", str(self.port), shim=client)
                self.assertEqual(out, b"right\n", err + self.read("log"))
                self.assert_ours(err, (server, client))
                s.terminate()
                s.wait(LIMIT)

    def test_node(self):
        self.each_side(which("node"), os.path.join(HERE, "http.js"))

    def test_java(self):
        which("javac")
        subprocess.run(["javac", "-d", self.dir, os.path.join(HERE, "Channels.java")], check=True, timeout=LIMIT)
        self.each_side(which("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", self.dir, "Channels")


if __name__ == "__main__":
    unittest.main(verbosity=2)
