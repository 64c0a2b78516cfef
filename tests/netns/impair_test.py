#!/usr/bin/env python3
"""Unmodified programs and the kernel, with a cable between that loses, delays, reorders, doubles and corrupts what it carries: every
byte arrives, as it was sent. How fast is bench/impair's to say."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
import lan_test  # noqa: E402

SEED = os.environ.get("UNET_SEED", str(int.from_bytes(os.urandom(4), "little")))


class Cable(lan_test.Lan):
    """Both directions at once, through one cable after the other; what was done to them is no accident."""
    config = ""

    def setUp(self):
        print("seed", SEED, end=" ", flush=True)
        self.ours, self.other = self.host("a", lan_test.OURS), self.host("b", lan_test.KERNELS)
        self.cable = lan.Bad(self.host("m", None), self.ours, self.other, seed=SEED)
        self.ours.become_ours(more=self.config)
        self.other.become_kernels()

    def through(self, expected, megabytes, **settings):
        """`expected`: what the forwarder says it did, in each direction, some times at the least."""
        for server, client in ((self.ours, self.other), (self.other, self.ours)):
            self.cable.forward(seed=SEED, **settings)
            self.exchanged(self.both_ways(server, client, megabytes), megabytes)
            # The last words of a connection may be lost too: while the cable is there.
            self.ours.until(lambda: not self.ours.program_on_link() or server is self.other, "the interface free again")
            for side in self.cable.stop():
                for what in expected:
                    self.assertGreater(side[what], 0, f"{what}: {side}")


class Impaired(Cable):
    def test_loss(self):
        self.through(("lost",), 20, loss=0.01)

    @lan.long_run
    def test_heavy_loss(self):
        self.through(("lost",), 4, loss=0.05)

    @lan.long_run
    def test_delay(self):
        self.through((), 20, delay=5)

    @lan.long_run
    def test_reordering(self):
        self.through(("reordered",), 20, delay=1, reorder=0.1, extra=2)

    @lan.long_run
    def test_duplication(self):
        self.through(("duplicated",), 20, dup=0.05)

    @lan.long_run
    def test_corruption(self):
        self.through(("corrupted",), 20, corrupt=0.005)

    def test_all_of_it(self):
        self.through(("lost", "duplicated", "corrupted", "reordered"), 4, delay=2, loss=0.008, dup=0.01, corrupt=0.006,
                     reorder=0.05, extra=2)

    def test_a_short_queue(self):
        """A narrow path whose queue is short, as most of those of the Internet."""
        self.through((), 10, delay=2, rate=100, queue=30)


class Marked(Cable):
    """Congestion is told by marks (RFC 3168), where both ask for that."""
    config = "[tcp]\necn = ask\n"

    def test_marks(self):
        self.other.sysctl("net.ipv4.tcp_ecn", 1)
        self.through(("marked",), 10, delay=1, mark=0.01)
        for what in ("InCEPkts", "TCPDeliveredCE"):     # on what we sent; and on what it sent, as our echo said
            self.assertGreater(self.other.counted(what), 0, what)


if __name__ == "__main__":
    lan_test.main()
