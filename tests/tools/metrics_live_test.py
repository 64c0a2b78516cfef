#!/usr/bin/env python3
"""unet metrics beside live stacks: OpenMetrics text, with the numbers of unet stat, in a file that is whole, and over HTTP."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests", "tools"))
from beside import LIMIT, UNET, Beside, look, unet, wait_until  # noqa: E402
from openmetrics import parse  # noqa: E402


class Reader(unittest.TestCase):
    """Who judges is judged."""

    GOOD = '# TYPE a counter\n# HELP a Of a.\na_total{x="1\\"\\\\\\n"} 4\n' \
           '# TYPE b_bytes gauge\n# UNIT b_bytes bytes\n# HELP b_bytes B.\nb_bytes 2\n# EOF\n'

    def test_takes_what_is_right(self):
        samples, families = parse(self.GOOD)
        self.assertEqual(samples[("a_total", frozenset({("x", '1"\\\n')}))], 4)
        self.assertEqual(families["b_bytes"]["unit"], "bytes")

    def test_refuses_what_is_wrong(self):
        for old, new in (("# EOF\n", ""), ("# EOF\n", "# EOF"), ("a_total", "a"), ("bytes bytes", "bytes seconds"), ("counter", "count"),
                         ("\nb_bytes 2", "\n\nb_bytes 2"), ("\nb_bytes 2", "\nb_bytes 2\nb_bytes 2"), (' 4\n', ' -4\n'), (' 4\n', ' x\n'),
                         ("\nb_bytes 2", "\nb_bytes 2\n# TYPE a counter"), ('x="1', 'x="1",x="'), ("\\n", "\\t"), ("# HELP a Of a.\n", ""),
                         ("\nb_bytes 2", "\na_total 2"), ('"} 4', '",} 4')):
            with self.subTest(new=new):
                self.assertIn(old, self.GOOD)
                with self.assertRaises((AssertionError, ValueError, KeyError)):
                    parse(self.GOOD.replace(old, new, 1))


class Metrics(Beside):
    def series(self, text, name, **labels):
        """The values of a metric's samples that have these labels."""
        want = {(k, str(v)) for k, v in labels.items()}
        return [v for (sample, have), v in parse(text)[0].items() if sample == name and want <= have]

    def test_without_unetd(self):
        text = unet("metrics")
        self.assertEqual(self.series(text, "unet_up"), [0])
        self.assertEqual(self.series(text, "unet_tcp_in_total"), [])

    def test_counters_are_those_of_stat(self):
        server = self.start_iperf3_server()
        stack = self.listener()["stack"]
        unet("run", "iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-n", "1M")

        def same():
            before = look("stat", "--stack", str(stack))
            text = unet("metrics")
            return before == look("stat", "--stack", str(stack)) and (before, text)

        stat, text = wait_until("a moment without a change", same)
        families = parse(text)[1]
        for name, value in stat["counters"].items():
            self.assertEqual(self.series(text, f"unet_{name.lower()}_total", stack=stack), [value], name)
            self.assertEqual(families["unet_" + name.lower()]["type"], "counter")
        for reason, value in stat["drops"].items():
            self.assertEqual(self.series(text, "unet_drops_total", stack=stack, reason=reason), [value], reason)
        self.assertGreater(stat["counters"]["TCP_IN"], 0)
        self.assertEqual(self.series(text, "unet_stack_info", stack=stack, program="iperf3", uid=os.getuid()), [1])
        self.assertEqual(families["unet_ni_rx_bytes"]["unit"], "bytes")
        self.assertEqual(self.series(text, "unet_up"), [1])
        self.assertIsNone(server.poll())

    def test_sockets_are_counted_by_state(self):
        self.start_iperf3_server()
        self.start_iperf3_client("-b", "1M")
        text = wait_until("connections", lambda: next((t for t in [unet("metrics")] if sum(
            self.series(t, "unet_sockets", protocol="tcp", state="ESTABLISHED")) == 4), None))
        self.assertEqual(sum(self.series(text, "unet_sockets", protocol="udp")), 0)

    def test_a_user_has_so_many_stacks_at_most(self):
        self.start_iperf3_server()
        self.start_iperf3_client("-b", "1M")
        wait_until("two stacks", lambda: len(look("status")["stacks"]) == 2 and sum(self.series(unet("metrics"), "unet_stack_info")) == 2)
        text = unet("metrics", "--stacks", "1")
        self.assertEqual(len(self.series(text, "unet_tcp_in_total")), 1)
        self.assertEqual(self.series(text, "unet_stacks_left_out"), [1])
        unet("metrics", "--stacks", "0", ok=(2,))

    def test_a_file_is_whole_at_any_time(self):
        self.start_iperf3_server()
        path = self.file("unet.prom")
        unet("metrics", "--output", path)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o644)
        for _ in range(5):
            inode = os.stat(path).st_ino
            with subprocess.Popen([UNET, "metrics", "--output", path]) as writer:
                while writer.poll() is None:
                    with open(path, encoding="utf-8") as f:
                        self.assertEqual(self.series(f.read(), "unet_up"), [1])
            self.assertEqual(writer.returncode, 0)
            self.assertNotEqual(os.stat(path).st_ino, inode)    # the old one is held open by who reads it
        self.assertEqual([n for n in os.listdir(self.scratch.name) if n.startswith("unet.prom")], ["unet.prom"])
        unet("metrics", "--output", self.file("no/unet.prom"), ok=(1,))
        unet("metrics", "--output", path, "--listen", "0", ok=(2,))

    def serving(self, where):
        """A server, and what it says of where it serves."""
        child = self.popen("metrics", "--listen", where)
        said = wait_until("its address", lambda: re.search(r"serves at (\S+)\n", "".join(self.lines(child.said + ".err"))))
        return child, said[1]

    def get(self, url, path="/metrics", method="GET"):
        connection = http.client.HTTPConnection(re.match(r"http://(.*)/metrics$", url)[1], timeout=LIMIT)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def test_http(self):
        self.start_iperf3_server()
        child, url = self.serving("0")
        self.assertTrue(url.startswith("http://127.0.0.1:"))
        answer, body = self.get(url)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.getheader("Content-Type"), "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertEqual(self.series(body, "unet_stack_info", program="iperf3"), [1])
        self.assertEqual(self.get(url, "/nothing")[0].status, 404)
        self.assertEqual(self.get(url, method="POST")[0].status, 405)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(LIMIT), 0)

    def test_who_says_nothing_holds_nobody_up(self):
        child, url = self.serving("127.0.0.1:0")
        port = int(re.search(r":(\d+)/", url)[1])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        self.assertEqual(self.get(url)[0].status, 200)          # after as many children as there may be have lost patience
        for s in silent:
            s.close()
        self.assertIsNone(child.poll())

    def test_a_unix_socket(self):
        path = self.file("socket")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path)
        child, said = self.serving(path)
        self.assertEqual(said, path)
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
        self.assertEqual(self.series(text.split("\r\n\r\n", 1)[1], "unet_up"), [0])
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(LIMIT), 0)
        self.assertFalse(os.path.exists(path))
        with open(path, "w", encoding="ascii"):
            pass
        unet("metrics", "--listen", path, ok=(1,))
        self.assertTrue(os.path.exists(path), "a file that is no socket is nobody's to take away")
        for where in ("", "x", "1.2.3.4", "127.0.0.1:", ":::", "127.0.0.1:99999"):
            unet("metrics", "--listen", where, ok=(1,))


if __name__ == "__main__":
    unittest.main(verbosity=2)
