#!/usr/bin/env python3
"""What the kernel has against a connection between programs of this host holds over the fabric: routes, `lo` that is down."""

import json
import os
import subprocess
import sys
import unittest

BUILD = os.environ["UNET_BUILD"]
UNET = os.path.join(BUILD, "tools", "unet")
SKIP, LIMIT = 77, 120

# One program with a listener and a datagram socket on all addresses; for each word of argv a command is run, or an address tried.
PROGRAM = r"""
import os, resource, socket, subprocess, sys
os.environ.pop("LD_PRELOAD", None)
l = socket.socket()
l.bind(("0.0.0.0", 0))
l.listen(16)
port = l.getsockname()[1]
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("0.0.0.0", port))
u.setblocking(False)

def tries(f, *args):
    try:
        f(*args)
        return 0
    except TimeoutError:
        return 110
    except OSError as e:
        return e.errno

last = ""
for word in sys.argv[1:]:
    if " " in word:
        subprocess.run(word, shell=True, check=True)
        last = word
        continue
    c = socket.socket()
    os.dup2(c.fileno(), 40)
    c.close()
    c = socket.socket(fileno=40)
    c.settimeout(2 if "lo down" in last else None)
    d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if word.endswith("!"):              # without a descriptor to ask the kernel by
        own = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, own[1]))
    one = tries(c.connect, (word.rstrip("!"), port))
    two = tries(d.sendto, b"x", (word.rstrip("!"), port))
    if word.endswith("!"):
        resource.setrlimit(resource.RLIMIT_NOFILE, own)
    c.close()
    d.close()
    print("tried", word, one, two, flush=True)
"""


def run(argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False, **more)


class Policy(unittest.TestCase):
    def tried(self, *words, ours):
        """Errors of connect() and sendto(), address by address, and how many connections were ours."""
        env = dict(os.environ, UNET_DOMAIN=f"policy-{os.getpid()}-{self.id().rsplit('_', 1)[-1]}", UNET_CONFIG="")
        done = run(["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$0" why --json "$@"', UNET, sys.executable, "-c", PROGRAM,
                    *words], env=env)
        said = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("tried ")]
        self.assertEqual(len(said), sum(" " not in word for word in words), done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual(sum(row["fd"] == 40 and row["carried"] == "u-net" for row in rows), ours, rows)
        return [(int(one), int(two)) for _, one, two in said]

    def test_routes_that_refuse(self):
        kinds = {"prohibit": 13, "unreachable": 113, "blackhole": 22}
        for kind, error in kinds.items():
            with self.subTest(kind):
                said = self.tried("127.0.0.7", f"ip route add {kind} 127.0.0.7/32 table local", "sleep 1.1", "127.0.0.7", "127.0.0.8",
                                  f"ip route del {kind} 127.0.0.7/32 table local", "127.0.0.7", ours=3)
                self.assertEqual(said, [(0, 0), (error, error), (0, 0), (0, 0)])

    def test_who_has_no_descriptor_left(self):
        said = self.tried("127.0.0.7", "127.0.0.8!", "ip route add prohibit 127.0.0.7/32 table local", "sleep 1.1", "127.0.0.7!",
                          "ip route del prohibit 127.0.0.7/32 table local", "sleep 1.1", "127.0.0.7", ours=2)
        self.assertEqual(said, [(0, 0), (0, 0), (13, 13), (0, 0)])

    def test_a_rule_for_one_port(self):
        said = self.tried("127.0.0.7", "ip rule add pref 5 lookup local; ip rule add pref 1 ipproto tcp to 127.0.0.7 prohibit; "
                          "ip rule del pref 0", "sleep 1.1", "127.0.0.7", "127.0.0.8", ours=2)
        self.assertEqual(said, [(0, 0), (13, 0), (0, 0)])

    def test_loopback_that_is_down(self):
        said = self.tried("127.0.0.1", "sleep 1.1; ip link set lo down; sleep 1", "127.0.0.1", "ip link set lo up; sleep 1",
                          "127.0.0.1", ours=2)
        self.assertEqual([one for one, _ in said], [0, 110, 0])         # what goes by lo is lost


if __name__ == "__main__":
    if os.geteuid() != 0 or run(["unshare", "-n", "ip", "link", "set", "lo", "up"]).returncode != 0:
        print("skipped: only root can make network namespaces")
        sys.exit(SKIP)
    unittest.main()
