#!/usr/bin/env python3
"""Stacks of several users that share an interface, and so an address, by unetd's bridge; the kernel at the other end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
from lan_test import CLOSED, HERE, KERNELS, OURS, PORT, Lan  # noqa: E402

ALICE, BOB, CAROL = 12001, 12002, 12003
MUCH = 60 if lan.LONG else 15           # megabytes


class Sharing(Lan):
    """Alice has the interface first."""

    def first(self, port=PORT + 10):
        """A stack of Alice's that has the interface to itself."""
        p = self.serve_peer(self.ours, "many-listen", port, 1000, user=ALICE)
        self.assertTrue(self.ours.program_on_link())
        return p

    def second(self, port=PORT + 11, user=BOB):
        """One more: from here on they share it."""
        p = self.serve_peer(self.ours, "many-listen", port, 1000, user=user)
        self.ours.until(lambda: not self.ours.program_on_link(), "the bridge")
        return p

    def reached(self, *ports):
        """A byte there and back on each."""
        for port in ports:
            self.assertEqual(self.peer(self.other, "many", OURS, port, 3).end(), "all\n")

    def transfers(self, megabytes, pause=0, **more):
        """To and from the kernel at once, both ways each, of three users."""
        return [self.both_ways(server, client, megabytes, pause, PORT + i, user=user, **more)
                for i, (server, client, user) in enumerate(((self.ours, self.other, ALICE), (self.other, self.ours, BOB),
                                                            (self.ours, self.other, CAROL)))]


class Share(Sharing):
    def test_each_is_reached_by_its_port(self):
        self.first()
        self.reached(PORT + 10)
        self.second()
        self.reached(PORT + 10, PORT + 11)
        self.second(PORT + 12, CAROL)
        self.reached(PORT + 12, PORT + 10, PORT + 11, PORT + 10)

    def test_root_sees_the_stacks_of_all(self):
        self.first()
        self.second()
        self.reached(PORT + 10, PORT + 11)

        def seen(*argv, **more):
            return json.loads(self.ours.run(lan.UNET, *argv, "--json", shim=False, **more).end())

        def listening(**more):
            rows = seen("ss", "--listening", **more)
            return {(row["local"].rsplit(":", 1)[1], row["holders"].split("/")[0]) for row in rows}

        both = {(str(PORT + i), "python3") for i in (10, 11)}
        self.assertEqual(listening(), both)
        self.assertEqual(listening(user=ALICE), {(str(PORT + 10), "python3")})
        self.assertEqual(listening(user=BOB), {(str(PORT + 11), "python3")})
        each = [seen("stat", user=user) for user in (ALICE, BOB)]
        of_all = seen("stat")
        self.assertEqual(sorted(of_all["stacks"]), sorted(n for one in each for n in one["stacks"]))
        self.assertEqual(of_all["counters"]["TCP_PASSIVE_OPEN"], sum(one["counters"]["TCP_PASSIVE_OPEN"] for one in each))
        self.assertGreaterEqual(of_all["counters"]["TCP_PASSIVE_OPEN"], 6)

    def test_all_go_out(self):
        self.first()
        servers = [self.serve_peer(self.other, "many-listen", PORT + i, 3) for i in range(3)]
        clients = [self.peer(self.ours, "many", KERNELS, PORT + i, 3, user=u) for i, u in enumerate((ALICE, BOB, CAROL))]
        for p in clients + servers:
            self.assertEqual(p.end(), "all\n")
        for p in clients:
            self.assert_ours(p)

    def test_bytes_arrive_as_sent(self):
        for pair in self.transfers(MUCH):
            self.exchanged(pair, MUCH)

    def test_a_transfer_goes_on_when_a_second_stack_comes_and_when_it_is_killed(self):
        pair = self.both_ways(self.ours, self.other, 5, 0.1, user=ALICE, goes_on=True)
        self.has_come(2)
        self.assertTrue(self.ours.program_on_link())
        for _ in range(2):
            second = self.second()
            self.reached(PORT + 11)
            second.child.kill()
            second.child.wait()
        self.exchanged(pair, 5)

    def test_who_is_left_has_the_socket_again(self):
        """... the first or another, with what it has under way; and shares it again."""
        pair = self.both_ways(self.ours, self.other, 5, 0.1, user=ALICE, goes_on=True)
        self.has_come(2)
        for n in range(2):
            others = [self.second(PORT + 11 + i, user) for i, user in enumerate((BOB, CAROL))]
            self.reached(PORT + 11, PORT + 12)
            for p in others:
                p.stop()
            self.alone_again(n + 1)
        self.exchanged(pair, 5)
        self.ours.until(lambda: self.users() == 0, "the end of its stack")
        first, second = self.first(), self.second()
        first.stop()
        self.alone_again(3)
        self.reached(PORT + 11)
        self.assertIsNone(second.child.poll())

    @lan.long_run
    def test_who_comes_and_goes_takes_nothing_from_the_first(self):
        """Again and again, after more and fewer packets by the bridge."""
        self.first()
        for n in (3, 1, 170, 2):
            second = self.second()
            self.assertEqual(self.peer(self.other, "many", OURS, PORT + 10, n).end(), "all\n")
            second.child.kill()
            second.child.wait()
            self.ours.until(self.ours.program_on_link, "the first to have it to itself again")
            self.reached(PORT + 10)

    @lan.long_run
    def test_a_keeper_that_is_late_costs_no_connection(self):
        """The bridge is gone before the stack hears of it, and its processes look whether their peers live."""
        pair = self.both_ways(self.ours, self.other, 5, 0.1, user=ALICE, goes_on=True)
        self.has_come(2)
        second = self.second()
        [keeper] = [row["pid"] for row in self.seen("status")["keepers"] if row["uid"] == ALICE]
        os.kill(keeper, signal.SIGSTOP)
        second.stop()
        self.alone_again(1)
        time.sleep(4.5)                 # they look every two seconds (USTACK_PEERS_EVERY)
        os.kill(keeper, signal.SIGCONT)
        self.exchanged(pair, 5)

    @lan.long_run
    def test_who_does_not_let_go_of_the_queue_is_waited_for(self):
        """A stopped process of the first stack has the socket still; the bridge goes on until it has let go. Of a program's rings
        there is nothing to let go of."""
        first = self.serve_peer(self.ours, "workers", PORT + 10, 3, user=ALICE)
        self.assertTrue(self.ours.program_on_link())
        self.reached_by_all(PORT + 10, 3)
        stopped = int(first.text().split()[1])
        self.ours.until(lambda: self.rests(stopped), "that worker to wait for the next")     # and to hold no lock
        os.kill(stopped, signal.SIGSTOP)
        second = self.second()
        self.reached(PORT + 11)
        second.stop()
        self.ours.until(lambda: self.users() == 1, "the end of the second")
        time.sleep(2.5)                 # it is tried meanwhile: seen or not, whoever connects is served
        self.assertEqual(self.ours.logged().count("alone again"), 0 if lan.MODE == "native" else 1)
        self.reached_by_all(PORT + 10, 2)
        os.kill(stopped, signal.SIGCONT)
        self.alone_again(1)
        self.reached_by_all(PORT + 10, 3)

    def rests(self, pid):
        """Whether it sleeps whenever it is looked at."""
        def sleeps():
            time.sleep(0.02)
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                return ") S " in f.read()
        return all(sleeps() for _ in range(10))

    def alone_again(self, times):
        """... has somebody been; the program on the interface tells less: it is there when a socket is tried, too."""
        self.ours.until(lambda: self.ours.logged().count("alone again") >= times, "the socket again")
        self.assertTrue(self.ours.program_on_link())

    def reached_by_all(self, port, workers):
        """Each of them answers."""
        seen = set()

        def enough():
            seen.add(self.peer(self.other, "who", OURS, port).end().strip())
            return len(seen) >= workers
        self.ours.until(enough, f"{workers} workers")

    def test_the_first_is_killed_and_the_others_go_on(self):
        first = self.first()
        pairs = self.transfers(10, 0.05, goes_on=True)
        self.has_come(10)
        first.child.kill()
        victim = pairs.pop(0)
        for p in victim:
            p.child.kill()
        for pair in pairs:
            self.exchanged(pair, 10)

    def test_they_reach_each_other_by_their_own_address(self):
        self.first()
        self.second()
        self.assertEqual(self.peer(self.ours, "many", OURS, PORT + 10, 3, user=BOB).end(), "all\n")
        self.assertEqual(self.peer(self.ours, "many", OURS, PORT + 11, 3, user=CAROL).end(), "all\n")

    def test_what_the_host_answers_it_answers_once(self):
        self.first()
        self.second()
        with contextlib.closing(lan.Wire(self.other)) as wire:
            for kind in ("tcp", "udp"):
                self.assertEqual(self.peer(self.other, "error", kind, OURS, CLOSED).end(), "ECONNREFUSED\n")
            for size in (8, 1400):
                self.other.sh(sys.executable, os.path.join(HERE, "echo.py"), OURS, str(size))
            mac = self.other.mac()
            self.ours.run(lan.UNET, "arp", "add", KERNELS, mac, shim=False).end()       # who asks is remembered without asking
            self.other.ip("neigh", "flush", "dev", lan.IFACE)
            self.reached(PORT + 10, PORT + 11)
            for question, answer in ((f"tcp dst port {CLOSED}", f"tcp src port {CLOSED} and tcp[tcpflags] & tcp-rst != 0"),
                                     (f"udp dst port {CLOSED}", "icmp[icmptype] == icmp-unreach and icmp[icmpcode] == 3"),
                                     ("icmp[icmptype] == icmp-echo", "icmp[icmptype] == icmp-echoreply")):
                asked, said = wire.caught(f"ip src {KERNELS} and {question}"), wire.caught(f"ip src {OURS} and {answer}")
                self.assertGreater(len(said), 0, asked)
                self.assertEqual(len(said), len(asked), [asked, said])
            asked = wire.caught(f"arp[6:2] == 1 and arp src {KERNELS} and arp dst {OURS}")
            replies = wire.caught(f"arp[6:2] == 2 and arp src {OURS}")
        self.assertGreater(len(replies), 0, asked)
        self.assertLessEqual(len(replies), len(asked), [asked, replies])

    def test_frames_with_a_priority_and_no_vlan_are_taken(self):
        """The kernel takes the tag off before the packet socket sees the frame."""
        self.first()
        self.second()
        self.answers_tags()

    def test_large_echo_in_fragments(self):
        self.first()
        self.second()
        self.other.sh(sys.executable, os.path.join(HERE, "echo.py"), OURS, "20000")

    def test_nobody_sends_as_somebody_else(self):
        """What Bob's program forges of Alice's, of another host's, and of nothing at all stays here, and is counted."""
        self.first()
        alices = self.both_ways(self.ours, self.other, 5, 0.1, user=ALICE, goes_on=True)
        self.second()
        with contextlib.closing(lan.Wire(self.other)) as wire:
            forge = self.ours.run(os.path.join(lan.BUILD, "tests", "netns", "netns_forge"), OURS, str(PORT), KERNELS,
                                  shim=False, user=CAROL)
            self.ours.until(lambda: "sent 50" in forge.text(), "forged frames")
            self.ours.until(lambda: self.bad_sources(CAROL) == 50, "all of them counted")
            self.assertEqual(wire.caught("ether broadcast and not arp"), [])
        self.assertEqual((self.bad_sources(ALICE), self.bad_sources(BOB)), (0, 0))
        self.exchanged(alices, 5)

    def bad_sources(self, user):
        rows = json.loads(self.ours.run(lan.UNET, "status", "--json", shim=False).end())["bridge"]
        return sum(row["bad_source"] for row in rows if row["uid"] == user)

    @lan.long_run
    def test_what_is_sent_after_a_while_is_noticed(self):
        """The bridge's own timers (ARP) run meanwhile, and it goes back to sleep."""
        self.first()
        self.second()
        self.exchanged(self.both_ways(self.other, self.ours, 2, 2.5, user=CAROL), 2)

    def test_who_sends_and_ends_is_heard(self):
        """The neighbour is not known to its stack yet, and the bridge has not looked at its ring."""
        ear = self.serve_peer(self.other, "hear", PORT + 1, kind="u")
        told = [f"{who}{user}" for who in ("alone", "shared", "again") for user in (ALICE, BOB)]
        for i, text in enumerate(told):
            if i == 2:
                self.first()
                self.second()
            self.peer(self.ours, "shout", KERNELS, PORT + 1, text, user=int(text[-5:])).end()
        self.ours.until(lambda: sorted(ear.text().split()) == sorted(told), "all that was said")

    @lan.long_run
    def test_and_so_when_the_neighbour_answers_late(self):
        """The stack stays until it does, or has asked three times."""
        ear = self.serve_peer(self.other, "hear", PORT + 1, kind="u")
        for n in range(2):
            self.ours.until(lambda n=n: self.answers_late(f"late{n}"), "an answer before the third request")
            self.ours.until(lambda n=n: f"late{n}" in ear.text(), "what was said")
            if n == 0:
                self.first()
                self.second()

    def answers_late(self, text):
        """Whether the neighbour did, to who said that: within two seconds after it had been said."""
        self.other.sysctl(f"net.ipv4.conf.{lan.IFACE}.arp_ignore", 8)
        said = float(self.peer(self.ours, "shout", KERNELS, PORT + 1, text, user=BOB).end())
        self.other.sysctl(f"net.ipv4.conf.{lan.IFACE}.arp_ignore", 0)
        return time.monotonic() - said < 2

    def test_errors_get_to_whom_they_concern(self):
        self.first()
        self.second()
        for user in (ALICE, BOB, CAROL):
            p = self.peer(self.ours, "error", "udp", KERNELS, CLOSED, user=user)
            self.assertEqual(p.end(), "ECONNREFUSED\n")
            self.assert_ours(p)

    def test_datagrams_in_fragments(self):
        self.first()
        self.serve_peer(self.ours, "echo", PORT + 1, kind="u", user=BOB)
        self.serve_peer(self.other, "echo", PORT + 2, kind="u")
        self.peer(self.other, "ask", OURS, PORT + 1, 1, 1472, 4000, 20000, 60000).end()
        self.peer(self.ours, "ask", KERNELS, PORT + 2, 1, 1472, 4000, 20000, 60000, user=CAROL).end()

    def test_the_interface_is_the_kernels_again(self):
        first, second = self.first(), self.second()
        first.stop()
        second.stop()
        self.ours.until(lambda: self.users() == 0, "nobody uses it")
        self.ours.ip("addr", "add", f"{OURS}/24", "dev", lan.IFACE)
        self.ours.sh(sys.executable, os.path.join(HERE, "echo.py"), KERNELS, "8")

    def users(self):
        return json.loads(self.ours.run(lan.UNET, "if", "--json", shim=False).end())[0]["stacks"]

    @lan.long_run
    def test_servers_of_many_users_again_and_again(self):
        """iperf3 listens anew for each client, and says so: nobody comes before that."""
        users = (ALICE, BOB, CAROL)
        servers = [self.ours.serve(PORT + i, "iperf3", "-s", "--forceflush", "-p", str(PORT + i), user=u)
                   for i, u in enumerate(users)]
        for done in range(3):
            self.ours.until(lambda: all(s.text().count("Server listening") > done for s in servers), "all listen again")
            clients = [self.other.run("iperf3", "-c", OURS, "-p", str(PORT + i), "-n", "10M", "-J", *options)
                       for i, options in enumerate(((), ("-R",), ("-P", "3")))]
            for c in clients:
                self.assertNotIn("error", json.loads(c.end()))
        for s in servers:
            self.assertIsNone(s.child.poll(), s.text() + s.text(1))


class Bound(Sharing):
    """Clients that chose their port: unetd takes the kernel's word that it is theirs."""

    MINE = 2049

    def setUp(self):
        super().setUp()
        self.serve_peer(self.other, "mirror", PORT)

    def bound(self, *ways, user=ALICE):
        """Connects from ports, each as (how, port); the program stays, its connections with it."""
        return self.peer(self.ours, "bound", *(f"{KERNELS},{PORT},{how},{port}" for how, port in ways), user=user,
                         stdin=subprocess.PIPE)

    def told(self, p, n):
        """What it printed for the first n."""
        self.ours.until(lambda: p.text().count("\n") >= n or p.child.poll() is not None, "connections")
        return p.text().split()

    def test_each_user_from_ports_of_its_own(self):
        self.first()
        self.second()
        ways = [("plain", 1), ("reuse", 2), ("late", None), ("plain", None), ("reuse", None)]
        for i, user in enumerate((ALICE, BOB, CAROL)):
            ports = [self.MINE + 10 * i + n if n else 0 for _, n in ways]
            p = self.bound(*((how, port) for (how, _), port in zip(ways, ports)), user=user)
            told = self.told(p, len(ways))
            self.assertEqual(len(told), len(ways), p.text(1))
            for port, what in zip(ports, told):
                self.assertEqual(what, str(port) if port else str(int(what)), p.text(1))
            self.assert_ours(p)

    def test_ports_that_the_kernel_chooses_are_nobodys_lease(self):
        """A stack's clients have leased ports among those that the kernel chooses from."""
        self.first()
        self.second()
        self.told(self.bound(("late", 0), user=BOB), 1)
        leases = self.seen("status")["leases"]
        self.assertGreater(len(leases), 0)
        leased = {port for row in leases for port in range(row["first"], row["first"] + row["ports"])}
        chosen = self.peer(self.ours, "chosen", 5000, user=CAROL).end().split()
        self.assertEqual(len(chosen), 5000)
        self.assertEqual(leased & set(map(int, chosen)), set())

    def test_a_port_is_one_users(self):
        """Where the kernel would let two have it."""
        self.first()
        self.second()
        alice = self.bound(("reuse", self.MINE))
        self.assertEqual(self.told(alice, 1), [str(self.MINE)])
        bob = self.bound(("reuse", self.MINE), user=BOB)
        self.assertEqual(self.told(bob, 1), ["EADDRNOTAVAIL"], bob.text(1))
        self.assertIn("vouch", bob.text(1))
        stat = self.ours.run(lan.UNET, "stat", shim=False, user=BOB).end()
        self.assertRegex(stat, r"TCP_UNVOUCHED +1\b")
        alice.child.kill()
        self.ours.until(lambda: self.told(self.bound(("reuse", self.MINE), user=BOB), 1) == [str(self.MINE)], "Alice's end")

    @lan.long_run
    def test_one_from_before_it_was_shared(self):
        pair = self.both_ways(self.other, self.ours, 5, 0.1, PORT + 1, user=ALICE, goes_on=True, mine=self.MINE)
        self.has_come(1)
        self.second()
        self.exchanged(pair, 5)

    @lan.long_run
    def test_what_is_closed_can_be_bound_again(self):
        self.first()
        self.second()
        for user in (ALICE, BOB, CAROL) * 3:
            p = self.bound(("reuse", self.MINE), user=user)
            self.assertEqual(self.told(p, 1), [str(self.MINE)], p.text(1))
            p.child.stdin.close()
            p.end()


class Offload(Sharing):
    """What the kernel leaves to devices to do, and over veth nobody does."""

    offload = True

    def test_datagrams_that_were_left_to_be_cut(self):
        self.first()
        for shared in (False, True):
            if shared:
                self.second()
            for size, count in ((1000, 10000), (1472, 1472 * 7 + 1), (100, 6399)):
                ear = self.serve_peer(self.ours, "sizes", PORT + 1, size, count, kind="u", user=CAROL if shared else ALICE)
                self.peer(self.other, "burst", OURS, PORT + 1, size, count).end()
                told = [int(n) for n in ear.end().split()[1:]]
                self.assertEqual(told, [size] * (count // size) + [count % size] * (count % size > 0))


class UnetdDies(Sharing):
    """... and with it the interface, its packets and its bridge."""

    def kill_unetd(self, another):
        if not another:
            os.unlink(os.path.join(self.ours.libexec, "unetd"))
        self.ours.daemon.child.kill()
        self.ours.daemon.child.wait()
        self.ours.until(lambda: not self.ours.program_on_link(), "the interface without a program")

    def both_end(self, pair):
        """With an error, ours soon: it can reach nobody any more."""
        ours, other = pair
        ours.end(120, ok=(0, 1))       # the error is told once, to whichever thread asks
        self.assertRegex(ours.text(1), "ConnectionResetError|BrokenPipeError|TimeoutError|OSError")
        other.stop()

    def test_connections_end_with_an_error_when_there_is_no_other_unetd(self):
        pair = self.both_ways(self.ours, self.other, 1, 0.1, user=ALICE, goes_on=True)
        self.has_come(2)
        self.kill_unetd(another=False)
        self.both_end(pair)

    @lan.long_run
    def test_and_so_do_those_by_the_bridge(self):
        pairs = [pair[::-1] if pair[0] in self.other.programs else pair for pair in self.transfers(1, 0.1, goes_on=True)]
        self.other.until(lambda: all(": ours" in ours.text(1) for ours, _ in pairs), "all three")
        self.has_come(10)
        self.kill_unetd(another=False)
        for pair in pairs:
            self.both_end(pair)

    @lan.long_run
    def test_another_unetd_takes_the_interface_up(self):
        first = self.first()
        self.kill_unetd(another=True)
        self.ours.start_daemon()
        self.serve_peer(self.ours, "many-listen", PORT + 20, 3, user=BOB)
        self.reached(PORT + 20)
        self.assertIsNone(first.child.poll())

    def test_who_listens_is_reached_by_the_next_unetd(self):
        """Without doing anything for it, alone or not, and by strangers on this host too."""
        listeners = [self.first()]
        for n in range(2):
            self.kill_unetd(another=True)
            time.sleep(2.5 * n)         # who looks for one meanwhile finds none
            self.ours.start_daemon()
            for port in range(PORT + 10, PORT + 10 + len(listeners)):
                self.is_reached(port)
                self.assertEqual(self.peer(self.ours, "many", OURS, port, 3, user=CAROL).end(), "all\n")
            if n == 0:
                listeners.append(self.second())
        for p in listeners:
            self.assertIsNone(p.child.poll())

    def is_reached(self, port):
        """Soon: its keeper and its processes have to find unetd first."""
        def once():
            p = self.peer(self.other, "many", OURS, port, 1)
            p.child.wait()
            return p.text() == "all\n"
        self.ours.until(once, f"port {port}")


if __name__ == "__main__":
    reason = lan.why_not() or lan.missing("setpriv", "iperf3", "dumpcap", "tcpdump")
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
