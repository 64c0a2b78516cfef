#!/usr/bin/env python3
"""Routes that prohibit, are unreachable or swallow, none at all, and `lo` that is down: connect(), sendto() and send() to a connected
peer say the same with the kernel's sockets, with these under the shim, and with those of the native interface."""

import os
import subprocess
import sys
import unittest

BUILD = os.environ["UNET_BUILD"]
UNET = os.path.join(BUILD, "tools", "unet")
PLAIN = os.path.join(BUILD, "tests", "sock", "sock_refused")
NATIVE = PLAIN + "_native"
SKIP, LIMIT = 77, 120
LATER = "sleep 1.1"                     # the kernel is asked about an address and port once a second
LOST = {"kernel": "EINPROGRESS", "shim": "EINPROGRESS", "native": "ENETUNREACH"}        # what connect() says when lo is down
FAR = "198.51.100.7"                    # no address of this host


def run(argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False, **more)


class Refused(unittest.TestCase):
    def say(self, *words):
        """The lines of each of the three, in a network namespace each; {lost} in a word is what it says when lo is down."""
        lines = []
        for how, argv in (("kernel", (PLAIN,)), ("shim", (UNET, "run", PLAIN)), ("native", (NATIVE,))):
            env = dict(os.environ, UNET_DOMAIN=f"refused-{os.getpid()}-{how}-{self.id().rsplit('_', 1)[-1]}", UNET_CONFIG="",
                       UNET_LIBEXEC=os.path.join(BUILD, "unetd"))
            done = run(["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$0" "$@"', *argv,
                        *(word.format(lost=LOST[how]) for word in words)], env=env)
            self.assertEqual(done.returncode, 0, how + done.stderr)
            lines.append(done.stdout.splitlines())
        return lines

    def same(self, *words):
        kernel, shim, native = self.say(*words)
        self.assertEqual(shim, kernel)
        self.assertEqual(native, kernel)
        return kernel

    def test_an_address_of_this_host(self):
        for kind, error in (("prohibit", "EACCES"), ("unreachable", "EHOSTUNREACH"), ("blackhole", "EINVAL")):
            with self.subTest(kind):
                route = f"{kind} 127.0.0.7/32 table local"
                said = self.same("127.0.0.7", f"ip route add {route}", LATER, "127.0.0.7", "127.0.0.8",
                                 f"ip route del {route}", "127.0.0.7")
                self.assertEqual(said, ["127.0.0.7 0 0 0 0", f"127.0.0.7 {error} {error} {error}", "127.0.0.8 0 0 0 0",
                                        "127.0.0.7 0 0 0 0"])

    def test_another_host(self):
        for kind, error in (("prohibit", "EACCES"), ("unreachable", "EHOSTUNREACH"), ("blackhole", "EINVAL")):
            with self.subTest(kind):
                said = self.same(FAR, f"ip route add {kind} {FAR}/32", FAR, f"ip route del {kind} {FAR}/32", FAR)
                none = f"{FAR} ENETUNREACH ENETUNREACH ENETUNREACH"
                self.assertEqual(said, [none, f"{FAR} {error} {error} {error}", none])

    def test_loopback_that_is_down(self):
        """unetd is told of it some time later."""
        kernel, shim, native = self.say("127.0.0.1", "ip link set lo down", "127.0.0.1={lost}", "ip link set lo up", "127.0.0.1=0")
        self.assertEqual(kernel, ["127.0.0.1 0 0 0 0", "127.0.0.1 EINPROGRESS 0 0 0", "127.0.0.1 0 0 0 0"])
        self.assertEqual(shim, kernel)
        self.assertEqual(native, ["127.0.0.1 0 0 0 0", "127.0.0.1 ENETUNREACH ENETUNREACH ENETUNREACH", "127.0.0.1 0 0 0 0"])


if __name__ == "__main__":
    if os.geteuid() != 0 or run(["unshare", "-n", "ip", "link", "set", "lo", "up"]).returncode != 0:
        print("skipped: only root can make network namespaces")
        sys.exit(SKIP)
    unittest.main()
