#!/usr/bin/env python3
"""Servers of many processes: as many as there are connections are served, and one that is killed harms no other.

    children_test.py [CHILDREN]
"""

import json
import os
import random
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from children import PROGRAM  # noqa: E402
from shim_test import CALLS, UNET, Case, wait_until  # noqa: E402

MANY = int(sys.argv.pop()) if sys.argv[-1].isdigit() else 100   # children, beyond any word of bits
KILLED = MANY // 5
SEED = int(os.environ.get("UNET_TEST_SEED") or random.randrange(1 << 32))


def is_daemon_of(pid, domain):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            argv = f.read().decode(errors="replace").split("\0")
    except OSError:
        return False
    return os.path.basename(argv[0]) == "unetd" and domain in argv


class Children(Case):
    def answers(self, client, k):
        return wait_until(f"answers {k}", lambda: len(client.text().split()) > k and [int(n) for n in client.text().split()])[k]

    def connections(self):
        done = self.run_it(UNET, "ss", "--json", shim=False)
        rows = json.loads(done.end(ok=None) or "[]")
        return sum(f":{self.port}" in row["local"] + row["peer"] for row in rows)

    def all_are_served(self, what, shim):
        server = self.server(*PROGRAM, what, str(self.port), str(MANY))
        client = self.run_it(*PROGRAM, "ask", str(self.port), str(MANY), shim=shim, stdin=subprocess.PIPE)
        self.assertEqual(self.answers(client, 0), MANY)
        for pid in random.Random(SEED).sample(server.text().split(), KILLED):
            os.kill(int(pid), signal.SIGKILL)
        client.child.stdin.write(b"\n")
        client.child.stdin.close()
        self.assertEqual(self.answers(client, 1), MANY - KILLED)
        client.end()
        server.end()
        if shim:
            self.assertEqual(client.said("ours"), MANY)
        wait_until("the last connection to end", lambda: self.connections() == 0)

    def test_a_child_for_each_connection(self):
        self.all_are_served("each", True)

    def test_a_child_for_each_connection_of_ordinary_clients(self):
        self.all_are_served("each", False)

    def test_children_that_accept_on_one_listener(self):
        self.all_are_served("prefork", True)

    def test_children_that_accept_on_one_listener_with_ordinary_clients(self):
        self.all_are_served("prefork", False)

    def test_children_in_namespaces_leave_nothing(self):
        """They have the unetd of their parent, and none of their own."""
        domain = {"UNET_DOMAIN": os.environ["UNET_DOMAIN"] + "-apart"}
        self.run_it(CALLS, "namespaces", env=domain).end()
        wait_until("the last socket to end", lambda: self.run_it(
            UNET, "ss", shim=False, env=domain).end(ok=None).strip() == "")
        daemons = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_daemon_of(pid, domain["UNET_DOMAIN"])]
        self.assertEqual(len(daemons), 1)

    def test_children_that_are_idle_take_turns(self):
        """The kernel gives the next connection to whoever waits longest; nobody is left out here."""
        self.server(*PROGRAM, "turns", str(self.port), "3")
        for shim in (True, False):
            def had(count, shim=shim):
                return json.loads(self.run_it(*PROGRAM, "one", str(self.port), str(count), shim=shim).end())

            wait_until("all of them to be there", lambda: len(had(30)) == 3)        # the last one may hardly be born
            self.assertEqual(len(had(300)), 3)


if __name__ == "__main__":
    print(f"UNET_TEST_SEED={SEED}")
    unittest.main(verbosity=2)
