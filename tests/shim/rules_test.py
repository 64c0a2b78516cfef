#!/usr/bin/env python3
"""[rule NAME] of unet.conf(5): what carries a socket, by program, role, address and port; and `unet why` names the rule."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
BUILD = os.environ["UNET_BUILD"]
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests"))
from ports import free_port  # noqa: E402

UNETD = os.path.join(BUILD, "unetd", "unetd")
UNET = os.path.join(BUILD, "tools", "unet")
LIMIT = 300

# A listener and a socket for datagrams at one port, and clients of both; numbers of descriptors tell them apart.
PROGRAM = """#!%s
import os, socket, sys
address, port = sys.argv[1], int(sys.argv[2])

def at(number, s):
    os.dup2(s.fileno(), number)
    n = socket.socket(fileno=number)
    s.close()
    return n

l = at(40, socket.socket())
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind((address, port))
l.listen(4)
c = at(41, socket.socket())
c.connect(("127.0.0.1", port))
a, _ = l.accept()
c.sendall(b"stream")
assert a.recv(100) == b"stream"
u = at(42, socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
u.bind((address, port))
v = at(43, socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
v.connect(("127.0.0.1", port))
v.send(b"datagram")
data, who = u.recvfrom(100)
assert data == b"datagram"
u.sendto(b"back", who)
assert v.recv(100) == b"back"
w = at(44, socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
for _ in range(2):
    w.sendto(b"again", ("127.0.0.1", port))
    assert u.recvfrom(100)[0] == b"again"
""" % sys.executable
LISTENER, CLIENT, BOUND, CONNECTED, SENDER = 40, 41, 42, 43, 44


class Rules(unittest.TestCase):
    runs = 0

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.program = os.path.join(self.dir.name, "some-server")
        with open(self.program, "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        os.chmod(self.program, stat.S_IRWXU)

    def tearDown(self):
        self.dir.cleanup()

    def carried(self, config, address="127.0.0.1"):
        """Runs the program under these rules: what carried each socket at the end, and why."""
        return self.says(self.configure(config), address)

    def configure(self, config):
        """A domain of its own with this configuration: the environment of who is in it."""
        Rules.runs += 1
        path = os.path.join(self.dir.name, "unet.conf")
        self.write(path, config)
        return dict(os.environ, UNET_CONFIG=path, UNET_DOMAIN=f"rules-{os.getpid()}-{Rules.runs}")

    def write(self, path, config):
        with open(path, "w", encoding="utf-8") as f:
            f.write("[daemon]\nidle = 1\n" + config.format(port=self.port, program=self.program))

    def says(self, env, address="127.0.0.1"):
        done = subprocess.run([UNET, "why", "--json", self.program, address, str(self.port)], env=env, capture_output=True,
                              text=True, timeout=LIMIT, check=False)
        rows = json.loads(done.stdout or "[]")
        self.assertNotIn("Traceback", done.stderr)
        self.assertTrue(rows, done.stderr)
        return {row["fd"]: (row["carried"], row["why"]) for row in rows}

    def assert_kernels(self, said, numbers, name):
        for number in (LISTENER, CLIENT, BOUND, CONNECTED, SENDER):
            expected = number in numbers
            self.assertEqual(said[number][0] == "kernel", expected, (number, said))
            if expected and name:
                self.assertEqual(said[number][1], f"[rule {name}] of the configuration")

    def test_without_a_rule_all_is_ours(self):
        self.assert_kernels(self.carried(""), (), None)
        self.assert_kernels(self.carried("[rule a]\nport = 1\ncarrier = kernel\n"), (), None)

    def test_a_port(self):
        said = self.carried("[rule the port]\nport = {port}\ncarrier = kernel\n")
        self.assert_kernels(said, (LISTENER, CLIENT, BOUND, CONNECTED), "the port")     # who sends has another of its own

    def test_one_protocol(self):
        said = self.carried("[rule t]\nprotocol = tcp\nport = {port}\ncarrier = kernel\n")
        self.assert_kernels(said, (LISTENER, CLIENT), "t")

    def test_who_listens(self):
        said = self.carried("[rule l]\nprotocol = tcp\nrole = listen\nport = {port}\ncarrier = kernel\n")
        self.assert_kernels(said, (LISTENER, CLIENT), None)     # nobody is there to connect to
        self.assertEqual(said[LISTENER][1], "[rule l] of the configuration")

    def test_who_connects(self):
        said = self.carried("[rule c]\nprotocol = tcp\nrole = connect\nport = {port}\ncarrier = kernel\n")
        self.assert_kernels(said, (CLIENT,), "c")

    def test_an_address(self):
        rule = "[rule n]\nprotocol = tcp\naddress = 127.0.0.0/16\ncarrier = kernel\n"
        self.assert_kernels(self.carried(rule), (LISTENER, CLIENT), "n")
        self.assert_kernels(self.carried(rule.replace("127.0", "127.1")), (), None)
        self.assert_kernels(self.carried(rule, "0.0.0.0"), (CLIENT,), "n")      # all addresses are more than these

    def test_a_program_by_its_name_and_by_its_path(self):
        for name in ("some-server", "{program}", os.path.realpath(sys.executable), os.path.basename(os.path.realpath(sys.executable))):
            said = self.carried(f"[rule p]\nprogram = {name}\nprotocol = tcp\ncarrier = kernel\n")
            self.assert_kernels(said, (LISTENER, CLIENT), "p")
        self.assert_kernels(self.carried("[rule p]\nprogram = server\ncarrier = kernel\n"), (), None)

    def test_the_first_rule_that_fits_holds(self):
        said = self.carried("[rule 1]\nprogram = some-server\ncarrier = unet\n[rule 2]\ncarrier = kernel\n")
        self.assert_kernels(said, (), None)
        said = self.carried("[rule 1]\nprogram = another\ncarrier = unet\n[rule 2]\ncarrier = kernel\n")
        self.assert_kernels(said, (LISTENER, CLIENT, BOUND, CONNECTED, SENDER), "2")

    def read_again(self, *options):
        """A unetd that is told to read its rules again; a file that it cannot read leaves them as they were."""
        env = self.configure("")
        log = os.path.join(self.dir.name, "log")
        unetd = subprocess.Popen([UNETD, "--foreground", "--idle", "-1", "--log", log, *options], env=env, stdin=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (unetd.terminate(), unetd.wait(LIMIT)))
        self.wait_for(log, "ready:")
        programs = dict(env, UNET_CONFIG="")      # what they do is by unetd's word, whatever the file says
        self.assert_kernels(self.says(programs), (), None)
        all_of_them = (LISTENER, CLIENT, BOUND, CONNECTED, SENDER)
        for config, line, numbers, name in (
                ("[rule 1]\ncarrier = kernel\n", "1 rules were read again", all_of_them, "1"),
                ("[rule 1]\ncarrier = nobody\n", "unet.conf:4: ", all_of_them, "1"),
                ("[rule 2]\nprogram = another\ncarrier = unet\n[rule 3]\ncarrier = kernel\n", "2 rules were read again",
                 all_of_them, "3"),
                ("", "0 rules were read again", (), None)):
            with self.subTest(line):
                self.write(env["UNET_CONFIG"], config)
                unetd.send_signal(signal.SIGHUP)
                self.wait_for(log, line)
                self.assert_kernels(self.says(programs), numbers, name)
        with open(log, encoding="utf-8") as f:
            self.assertEqual(f.read().count("the rules stay as they were"), 1)
        self.assertIsNone(unetd.poll())

    def wait_for(self, path, text):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if os.path.exists(path):
                with open(path, encoding="utf-8") as f:
                    if text in f.read():
                        return
            time.sleep(0.01)
        self.fail(f"not said: {text}")

    def test_rules_are_read_again(self):
        self.read_again()

    def test_rules_of_a_system_wide_unetd_are_read_again(self):
        """By its monitor: nobody else may read this file."""
        if os.geteuid() != 0:
            self.skipTest("only root may start one for all users")
        os.chmod(self.dir.name, 0o700)
        self.read_again("--system")


if __name__ == "__main__":
    unittest.main(verbosity=2)
