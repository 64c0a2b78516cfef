#!/usr/bin/env python3
"""The examples over <unet/sock.h> and <unet/flow.h> do what they say."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BUILD = os.environ["UNET_SOURCE"], os.environ["UNET_BUILD"]
os.environ["UNET_DOMAIN"] = f"examples-{os.getpid()}"           # a unetd of our own
sys.path.insert(0, os.path.join(SOURCE, "tests"))
import ports  # noqa: E402

PATIENCE = 200


def example(name, *args):
    return subprocess.Popen([os.path.join(BUILD, "examples", name), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


class Examples(unittest.TestCase):
    def sends(self, server, name, *args):
        """The client; again, as long as nobody listens yet."""
        until = time.monotonic() + PATIENCE
        while True:
            client = example(name, *args)
            out, err = client.communicate(timeout=PATIENCE)
            if client.returncode == 0:
                return out
            self.assertIn("refused", err)
            self.assertIsNone(server.poll())
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)

    def metered(self, rate, count):
        port = next(p for p in ports.candidates() if ports.claimed(p))
        server = example("meter_sock", "-s", "-p", port, "-r", rate)
        self.sends(server, "meter_sock", "-p", port, "-n", count)
        out, err = server.communicate(timeout=PATIENCE)
        self.assertEqual(server.returncode, 0, err)
        came, took, granted = re.match(r"(\d+) bytes in ([\d.]+) s, granted (\d+):", out).groups()
        self.assertEqual(int(came), count)
        self.assertGreaterEqual(int(granted), count)
        self.assertLessEqual(int(granted), rate * (float(took) + 0.001), out)      # it is printed rounded

    def test_a_metered_sender_sends_no_faster_than_granted(self):
        self.metered(2000000, 600000)
        self.metered(100000, 30001)

    def reads_by_the_shim(self, port, path):
        """A program that knows nothing of us, of what lies in the server's own memory."""
        code = "import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n" \
               "sys.stdout.buffer.write(b''.join(iter(lambda: s.recv(99999), b'')))"
        run = subprocess.run([os.path.join(BUILD, "tools", "unet"), "run", sys.executable, "-c", code, str(port)], capture_output=True,
                             check=True, timeout=PATIENCE)
        with open(path, "rb") as f:
            self.assertEqual(f.read(), run.stdout)

    def test_a_file_arrives_as_it_is(self):
        with tempfile.TemporaryDirectory() as where:
            there, here = os.path.join(where, "there"), os.path.join(where, "here")
            for size, times in (0, 1), (1, 1), (5000001, 1), (1, 2), (5000001, 4):
                with open(there, "wb") as f:
                    f.write(os.urandom(size))
                port = next(p for p in ports.candidates() if ports.claimed(p))
                server = example("file_sock", "-s", "-p", port, "-n", times, there)
                for _ in range(min(times, 3)):
                    self.assertIn(f"{size} bytes", self.sends(server, "file_sock", "-p", port, here))
                    with open(there, "rb") as a, open(here, "rb") as b:
                        self.assertEqual(a.read(), b.read())
                if times == 4:
                    self.reads_by_the_shim(port, there)
                _, err = server.communicate(timeout=PATIENCE)
                self.assertEqual(server.returncode, 0, err)

    def served(self, name, serve, *ask):
        """What a server and its client print."""
        port = next(p for p in ports.candidates() if ports.claimed(p))
        server = example(name, "-s", "-p", port, *serve)
        told = self.sends(server, name, "-p", port, *ask)
        out, err = server.communicate(timeout=PATIENCE)
        self.assertEqual(server.returncode, 0, err)
        return out, told

    def test_a_video_sender_drops_what_a_slow_viewer_has_no_time_for(self):
        out, told = self.served("video_sock", ["-r", 100], "-f", 500, "-n", 200)
        sent, dropped = map(int, re.search(r"(\d+) sent, (\d+) dropped", told).groups())
        shown, last = map(int, re.match(r"(\d+) frames shown, the last is number (\d+)", out).groups())
        self.assertEqual(sent + dropped, 200)
        self.assertGreater(dropped, 0)
        self.assertEqual(shown, sent)
        self.assertEqual(last, 199)

    def test_an_rpc_server_sheds_what_would_wait(self):
        out, told = self.served("rpc_sock", ["-w", 100, "-q", 4], "-n", 1000, "-o", 4)
        self.assertEqual(out, "1000 done, 0 shed\n")
        self.assertEqual(told, "1000 answers, 0 busy\n")
        out, told = self.served("rpc_sock", ["-w", 2000, "-q", 4], "-n", 1000, "-o", 64)
        done, shed = map(int, re.match(r"(\d+) done, (\d+) shed", out).groups())
        self.assertEqual(done + shed, 1000)
        self.assertGreater(shed, 0)
        self.assertGreater(done, 0)
        self.assertEqual(told, f"1000 answers, {shed} busy\n")

    def test_a_plan_of_ones_own_and_what_goes_on_without_it(self):
        for dies in ([], ["-k", 3]):
            out, told = self.served("plan_sock", [], "-n", 30000000, *dies)
            self.assertEqual(out, "30000000 bytes\n")
            planned, others = map(int, re.match(r"(\d+) bytes by plan, (\d+) by", told).groups())
            self.assertEqual(planned + others, 30000000)
            self.assertGreater(planned, 0)

    def shown(self, name, serve, ask, has):
        """Runs both sides until `unet ss` has a row of which has() is true."""
        port = next(p for p in ports.candidates() if ports.claimed(p))
        sides = [example(name, "-s", "-p", port, *serve)]
        try:
            until = time.monotonic() + PATIENCE
            while True:
                self.assertLess(time.monotonic(), until)
                if sides[-1].poll() is not None or len(sides) == 1:
                    sides.append(example(name, "-p", port, *ask))
                done = subprocess.run([os.path.join(BUILD, "tools", "unet"), "ss", "--json"], capture_output=True, check=False)
                if any(has(row) for row in json.loads(done.stdout or "[]")):
                    return
        finally:
            for side in sides:
                side.kill()
                side.communicate()

    def test_ss_shows_what_an_application_controls(self):
        self.shown("plan_sock", [], ["-n", 1 << 40], lambda row: row.get("plan", {}).get("window", 0) > 0 and row["congestion"] == "plan")
        self.shown("video_sock", ["-r", 100], ["-f", 500, "-n", 100000], lambda row: row.get("watch", {}).get("unsent_below") == 1)
        self.shown("meter_sock", ["-r", 1000], ["-n", 100000], lambda row: "granted" in row)


if __name__ == "__main__":
    unittest.main()
