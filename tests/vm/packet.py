#!/usr/bin/env python3
"""Interfaces where the kernel can neither pass AF_XDP sockets on nor hang programs behind a driver (before Linux 6.4): all goes by
packet sockets. packet.py BUILD [unittest's arguments]"""

import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
BUILD, *REST = sys.argv[1:]
NETNS = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "netns")
os.environ.update(UNET_BUILD=BUILD)
sys.path.insert(0, NETNS)
import lan_test  # noqa: E402
import share_test  # noqa: E402

lan_test.BIG = 5                                # megabytes each way
HOW = "packet socket with virtio headers.*a macvlan device behind it"


class Alone(lan_test.Kernel):
    def tearDown(self):
        self.assertRegex(self.ours.logged(), f"Linux 6.[46].*\n.*{HOW}")       # what it has not, and what it goes by instead
        self.assertRegex(self.ours.logged(), f"for stack.*bridge: .*{HOW}")

    def test_iperf3_both_ways(self):
        for options in ((), ("-R",), ("-u", "-b", "50M", "-l", "1400")):
            self.iperf3(self.other, self.ours, *options, "-n", "5M")


class Shared(share_test.Share):
    def first(self, port=lan_test.PORT + 10):
        return self.serve_peer(self.ours, "many-listen", port, 1000, user=share_test.ALICE)


class Provider(unittest.TestCase):
    def test_each_packet(self):
        subprocess.run([os.path.join(BUILD, "tests", "netns", "netns_packet_test")], check=True, timeout=300)


TESTS = ("Provider",
         *(f"Alone.test_{name}" for name in ("iperf3_both_ways", "bytes_arrive_as_sent", "link_down_and_up_in_the_middle",
                                             "interface_comes_back_when_its_bridge_is_killed")),
         "Shared.test_each_is_reached_by_its_port")

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST], defaultTest=TESTS, verbosity=2)
