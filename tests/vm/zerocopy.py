#!/usr/bin/env python3
"""Programs over AF_XDP that the driver does not copy for, against the kernel on the machine's other NIC (tests/vm/vm --nics):
zerocopy.py BUILD [unittest's arguments]"""

import os
import signal
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
BUILD, *REST = sys.argv[1:]
NETNS = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "netns")
os.environ.update(UNET_BUILD=BUILD, UNET_TEST_NICS=os.environ["VM_NICS"], UNET_TEST_MODE="native")
sys.path.insert(0, NETNS)
import lan_test  # noqa: E402
from lan_test import KERNELS, OURS, PORT  # noqa: E402

lan_test.BIG = 100                              # megabytes each way
HOW = "AF_XDP.*: zero copy"
FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], int(sys.argv[2])))
while True:
    s.send(bytes(1400)); print(".", end="", flush=True)
"""
SILENT = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], int(sys.argv[2]))); time.sleep(600)
"""
STUCK = 1                                       # seconds without progress


class ZeroCopy(lan_test.Kernel):
    def setUp(self):
        self.ours, self.other = self.host("a", OURS), self.host("b", KERNELS)
        lan_test.lan.cable(self.ours, self.other)
        self.ours.become_ours(more="[daemon]\nidle = -1\n")      # here it takes long until somebody comes
        self.other.become_kernels()

    def tearDown(self):
        self.assertRegex(self.ours.logged(), HOW)
        self.assertNotIn("copied by the kernel", self.ours.logged())

    def iperf3(self, server, client, *options):
        super().iperf3(server, client, *options)
        print(*options, "to", server.name[-1], flush=True)

    def test_iperf3_all_ways(self):
        for options in ((), ("-R",), ("-P", "4"), ("-u", "-b", "100M", "-l", "1400")):
            self.iperf3(self.other, self.ours, *options)
            self.iperf3(self.ours, self.other, *options)

    def test_datagrams_in_fragments(self):
        self.datagrams(self.other, self.ours)
        self.datagrams(self.ours, self.other)

    def sent(self, p):
        """Datagrams, when nothing has happened for a while."""
        while True:
            before = len(p.text())
            time.sleep(STUCK)
            if len(p.text()) == before > 0:
                return before

    def test_who_waits_for_room_gets_it(self):
        """By nobody but the device, which says nothing of it: the other side takes nothing for a time, and never answers."""
        self.other.sysctl(f"net.ipv6.conf.{lan_test.lan.IFACE}.disable_ipv6", 1)        # which speaks when the link comes up
        self.other.serve(PORT, sys.executable, "-c", SILENT, KERNELS, str(PORT), kind="u")
        p = self.ours.run(sys.executable, "-c", FLOOD, KERNELS, str(PORT))
        self.ours.until(lambda: len(p.text()) > 100, "some datagrams")
        self.assert_ours(p)
        for _ in range(3):
            self.other.ip("link", "set", lan_test.lan.IFACE, "down")
            before = self.sent(p)
            self.other.ip("link", "set", lan_test.lan.IFACE, "up")
            began = time.monotonic()
            self.ours.until(lambda: len(p.text()) > before, "more")
            print(f"after {before}: {time.monotonic() - began:.2f} s", flush=True)

    def test_a_program_is_killed_in_the_middle(self):
        """The next one has it as well, and at once."""
        before = self.said_of_interface()
        for _ in range(3):
            pair = self.both_ways(self.other, self.ours, 10, 0.05, goes_on=True)
            self.has_come(5)
            [row] = self.seen("if")
            self.assertRegex(row["how"], HOW)
            pair[1].child.send_signal(signal.SIGKILL)
            pair[1].end(ok=(-signal.SIGKILL,))
            pair[0].end(ok=None)
            self.assertRegex(pair[0].text(1), "ConnectionResetError|BrokenPipeError")
            self.ours.until(lambda: not self.ours.program_on_link(), "the interface without a program")
            self.assertEqual(self.said_of_interface(), before)



class Provider(unittest.TestCase):
    def test_each_packet(self):
        """Byte by byte: tests/netns/xdp_nic_test.c."""
        subprocess.run([os.path.join(BUILD, "tests", "netns", "netns_xdp_nic_test")], check=True, timeout=300)


TESTS = ("test_iperf3_all_ways", "test_bytes_arrive_as_sent", "test_datagrams_in_fragments", "test_who_waits_for_room_gets_it",
         "test_a_program_is_killed_in_the_middle", "test_link_down_and_up_in_the_middle",
         "test_interface_comes_back_when_unetd_is_killed", "test_an_interface_is_its_first_stacks_until_a_second_comes")

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST], defaultTest=["Provider", *(f"ZeroCopy.{name}" for name in TESTS)], verbosity=2)
