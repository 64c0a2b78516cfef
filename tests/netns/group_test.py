#!/usr/bin/env python3
"""Groups and broadcasts over AF_XDP, with the kernel on the other end of a cable, and what IGMP says on it."""

import os
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import lan  # noqa: E402

OURS, KERNELS, PORT, GROUP, OTHER = "10.78.0.1", "10.78.0.2", 5301, "239.1.2.3", "239.129.2.3"
PROGRAM = (sys.executable, os.path.join(HERE, "group.py"))


class Group(lan.Scene):
    def setUp(self):
        self.ours, self.kernels = self.host("a", OURS), self.host("b", KERNELS)
        lan.cable(self.ours, self.kernels)
        self.ours.become_ours()
        self.kernels.become_kernels()

    def hear(self, host, group=GROUP, *argv, where=None):
        p = host.run(*PROGRAM, "hear", group, where or host.address, str(PORT), *argv)
        host.until(lambda: "joined" in p.text() or p.child.poll() is not None, "a member")
        self.assertIn("joined", p.text(), p.text(1))
        return p

    def say(self, host, *text, to=GROUP, where=None, options=(), **more):
        return host.run(*PROGRAM, "say", to, where or host.address, str(PORT), *text, *options, **more)

    def watch(self):
        if not shutil.which("tshark"):
            self.skipTest("no tshark here")
        self.wire = lan.Wire(self.kernels)

    def seen(self, which, *fields):
        """Packets of ours, after the capture; what is malformed fails the test."""
        self.wire.close()
        show = [w for f in fields for w in ("-e", f)]
        bad = lan.sh("tshark", "-r", self.wire.file, *lan.CHECKS, "-Y", f"ip.src == {OURS} && (_ws.malformed || "
                     "ip.checksum.status == 0 || udp.checksum.status == 0 || igmp.checksum.status == 0)")
        self.assertEqual(bad, "")
        rows = lan.sh("tshark", "-r", self.wire.file, "-Y", f"ip.src == {OURS} && ({which})", "-T", "fields", *show)
        return [row.split("\t") for row in rows.splitlines()]


class Udp(Group):
    def test_the_kernel_sends_to_a_group_of_ours(self):
        p = self.hear(self.ours)
        self.assertEqual(self.say(self.kernels, "hello").end(), "sent\n")
        self.assertEqual(p.end(), f"joined\n{KERNELS} hello\n")
        self.assert_ours(p)

    def test_the_device_lets_groups_through_while_it_is_ours(self):
        def all_groups():
            return "allmulti 1" in self.ours.ip("-d", "link", "show", lan.IFACE)

        self.assertFalse(all_groups())
        p = self.hear(self.ours)
        self.assertTrue(all_groups())
        p.stop()
        self.ours.until(lambda: not all_groups(), "the interface as before")

    def test_we_send_to_a_group_of_the_kernels(self):
        p = self.hear(self.kernels)
        s = self.say(self.ours, "hello")
        self.assertEqual(s.end(), "sent\n")
        self.assertEqual(p.end(), f"joined\n{OURS} hello\n")
        self.assert_ours(s)

    def test_a_datagram_in_parts(self):
        """To a group, to a host, and longer than the link carries."""
        p = self.hear(self.kernels, GROUP, "--count", "3")
        parts = ((GROUP, ("one, ", "two, ", "three")), (KERNELS, ("four, ", "five")), (KERNELS, ("2000", "3000")))
        for to, text in parts:
            s = self.say(self.ours, *text, to=to, options=["--joined"])
            self.assertEqual(s.end(), "sent\n")
            self.assert_ours(s)
        self.assertEqual(p.end(), f"joined\n{OURS} one, two, three\n{OURS} four, five\n{OURS} 5000\n")

    def test_each_socket_has_a_copy_and_so_have_those_of_this_host(self):
        theirs, mine = self.hear(self.kernels), self.hear(self.ours, GROUP, "--sockets", "3")
        self.say(self.kernels, "hello").end()
        self.assertEqual(mine.end(), "joined\n" + f"{KERNELS} hello\n" * 3)
        self.assertEqual(theirs.end(), f"joined\n{KERNELS} hello\n")

    def test_groups_that_share_an_ethernet_address_are_kept_apart(self):
        """RFC 1112 6.4: 239.1.2.3 and 239.129.2.3 are one MAC address."""
        p = self.hear(self.ours)
        self.say(self.kernels, "other", to=OTHER).end()
        self.say(self.kernels, "hello").end()
        self.assertEqual(p.end(), f"joined\n{KERNELS} hello\n")

    def test_by_an_interface_index_and_by_none(self):
        """Nobody has a route to groups but by our interface."""
        p = self.hear(self.ours, GROUP, "--index", lan.IFACE)
        self.say(self.kernels, "index").end()
        self.assertEqual(p.end(), f"joined\n{KERNELS} index\n")
        self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")
        p = self.hear(self.ours, where="0.0.0.0")
        self.say(self.kernels, "none").end()
        self.assertEqual(p.end(), f"joined\n{KERNELS} none\n")
        self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")
        theirs = self.hear(self.kernels)
        self.assertEqual(self.say(self.ours, "anyhow", where="any").end(), "sent\n")
        self.assertEqual(theirs.end(), f"joined\n{OURS} anyhow\n")

    def test_what_comes_beside(self):
        theirs, mine = self.hear(self.kernels, GROUP, "--beside"), self.hear(self.ours, GROUP, "--beside")
        self.say(self.kernels, "hello", options=["--ttl", "7"]).end()
        where = f"{KERNELS} hello by {lan.IFACE} to {GROUP} at"
        self.assertEqual(mine.end(), f"joined\n{where} {OURS} ttl 7\n")
        self.assertEqual(theirs.end(), f"joined\n{where} {KERNELS} ttl 7\n")

    def test_sources_are_chosen(self):
        self.kernels.ip("addr", "add", "10.78.0.3/24", "dev", lan.IFACE)
        p = self.hear(self.ours, GROUP, "--source", "10.78.0.3")
        self.say(self.kernels, "no").end()
        self.say(self.kernels, "yes", where="10.78.0.3").end()
        self.assertEqual(p.end(), "joined\n10.78.0.3 yes\n")

    def test_whole_filters_are_the_kernels(self):
        """RFC 3678: IP_MSFILTER and MCAST_MSFILTER, the same words from both stacks."""
        ours, theirs = (h.run(*PROGRAM, "filters", GROUP, h.address, "0", "--index", lan.IFACE)
                        for h in (self.ours, self.kernels))
        self.assertEqual(ours.end(), theirs.end())
        self.assertIn("sources 2: 10.78.0.3 10.78.0.4\n", ours.text())
        self.assert_ours(ours)

    def test_a_filter_says_who_is_heard(self):
        self.kernels.ip("addr", "add", "10.78.0.3/24", "dev", lan.IFACE)
        p = self.hear(self.ours, GROUP, "--only", "10.78.0.3", "--only", "10.78.0.4")
        self.say(self.kernels, "no").end()
        self.say(self.kernels, "yes", where="10.78.0.3").end()
        self.assertEqual(p.end(), "joined\n10.78.0.3 yes\n")

    def test_fragments(self):
        theirs, mine = self.hear(self.kernels), self.hear(self.ours)
        self.say(self.kernels, "20000").end()
        self.assertEqual(mine.end(), f"joined\n{KERNELS} 20000\n")
        self.assertEqual(theirs.end(), f"joined\n{KERNELS} 20000\n")
        self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")
        theirs = self.hear(self.kernels)
        self.say(self.ours, "20000").end()
        self.assertEqual(theirs.end(), f"joined\n{OURS} 20000\n")

    def test_broadcast(self):
        for to in ("10.78.0.255", "255.255.255.255"):
            if to == "255.255.255.255":
                self.kernels.ip("route", "add", "default", "dev", lan.IFACE)
            theirs = self.hear(self.kernels, "none")
            self.assertEqual(self.say(self.ours, "x", to=to).end(), "EACCES\n")
            self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")
            s = self.say(self.ours, "all", to=to, options=["--broadcast"])
            self.assertEqual(s.end(), "sent\n")
            self.assert_ours(s)
            self.assertEqual(theirs.end(), f"joined\n{OURS} all\n")
            self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")
            mine = self.hear(self.ours, "none", "--sockets", "2")
            self.assertEqual(self.say(self.kernels, "all", to=to, options=["--broadcast"]).end(), "sent\n")
            self.assertEqual(mine.end(), "joined\n" + f"{KERNELS} all\n" * 2)
            self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")


class Shared(Group):
    """Several stacks on the interface, by unetd's bridge."""

    def test_all_hear_what_comes_and_what_the_others_say(self):
        mine = [self.hear(self.ours, GROUP, "--count", "2") for _ in range(3)]
        theirs = self.hear(self.kernels, GROUP, "--count", "2")
        self.ours.until(lambda: not self.ours.program_on_link(), "the bridge")
        self.say(self.kernels, "theirs").end()
        self.ours.until(lambda: all("theirs" in p.text() for p in (*mine, theirs)), "all to hear the first")
        self.assertEqual(self.say(self.ours, "ours").end(), "sent\n")
        for p in mine:
            self.assertEqual(p.end(), f"joined\n{KERNELS} theirs\n{OURS} ours\n")
            self.assert_ours(p)
        self.assertEqual(theirs.end(), f"joined\n{KERNELS} theirs\n{OURS} ours\n")

    def test_two_programs_have_the_port_and_both_speak(self):
        mine, theirs = self.hear(self.ours), self.hear(self.kernels)
        s = self.say(self.ours, "both", options=["--same-port", "--stay"], stdin=subprocess.PIPE)
        for p in (mine, theirs):
            self.assertEqual(p.end(), f"joined\n{OURS} both\n")
        s.child.stdin.close()
        self.assertEqual(s.end(), "sent\n")

    def test_a_broadcast_and_what_is_long(self):
        mine = [self.hear(self.ours, "none", "--count", "2") for _ in range(2)]
        self.assertEqual(self.say(self.ours, "20000", "x", to="10.78.0.255", options=["--broadcast"]).end(), "sent\n")
        for p in mine:
            self.assertEqual(p.end(), f"joined\n{OURS} 20000\n{OURS} x\n")

    def test_who_does_not_loop_is_heard_outside_alone(self):
        mine, theirs = self.hear(self.ours), self.hear(self.kernels)
        self.assertEqual(self.say(self.ours, "quiet", options=["--quiet"]).end(), "sent\n")
        self.assertEqual(theirs.end(), f"joined\n{OURS} quiet\n")
        self.say(self.ours, "loud").end()
        self.assertEqual(mine.end(), f"joined\n{OURS} loud\n")


class Errors(Group):
    def test_the_error_queue_is_the_kernels(self):
        ours = self.ours.run(*PROGRAM, "errors", KERNELS, "-", str(PORT))
        said = ours.end()
        self.assert_ours(ours)
        self.ours.until(lambda: not self.ours.program_on_link(), "the interface for another stack")
        self.hear(self.ours, "none")            # somebody has it, and no socket on the port above
        theirs = self.kernels.run(*PROGRAM, "errors", OURS, "-", str(PORT + 1)).end()
        self.assertEqual(said.replace(KERNELS, "HOST"), theirs.replace(OURS, "HOST").replace(str(PORT + 1), str(PORT)))
        self.assertIn("ECONNREFUSED origin 2 type 3 3", said)
        self.assertIn("EMSGSIZE origin 1 type 0 0 info 1500 from nobody", said)


class Igmp(Group):
    """Reports: RFC 3376 4.2, after an old querier RFC 2236."""

    def setUp(self):
        super().setUp()
        self.watch()

    def until_told(self, field, *values):
        """Waits until there were reports of ours with these values of a field, each as often as it is named."""
        def told():
            seen = self.wire.so_far(f"ip.src == {OURS} && igmp", "-T", "fields", "-e", field)
            return all(seen.count(v) >= values.count(v) for v in values)

        self.ours.until(told, f"reports with {field} {values}")

    def test_joining_and_leaving_are_told(self):
        p = self.hear(self.ours, GROUP, "--leave", "--count", "0")
        self.ours.until(lambda: "left" in p.text(), "it to leave")
        self.until_told("igmp.record_type", "3")        # it may be gone before it says so again
        rows = self.seen("igmp", "ip.dst", "ip.ttl", "ip.opt.ra", "igmp.type", "igmp.record_type", "igmp.maddr")
        self.assertEqual({row[0] for row in rows}, {"224.0.0.22"})
        self.assertEqual({row[1] for row in rows}, {"1"})
        self.assertEqual({row[3] for row in rows}, {"0x22"})
        self.assertRegex("".join(row[4] for row in rows), "^44?33?$")
        self.assertEqual({row[5] for row in rows}, {GROUP})

    def test_a_filter_is_told(self):
        """RFC 3376 5.1: the membership that it came from may be told first; then its sources to include, and its end."""
        p = self.hear(self.ours, GROUP, "--only", "10.78.0.3")
        self.until_told("igmp.record_type", "3", "3")   # before the second, its end would be one more of that kind
        p.child.kill()
        self.ours.until(lambda: not self.ours.program_on_link(), "its end")
        self.until_told("igmp.record_type", "6")
        rows = [row for row in self.seen("igmp", "igmp.record_type", "igmp.num_src", "igmp.saddr") if row[0] != "4"]
        self.assertEqual(rows[0], ["3", "1", "10.78.0.3"])
        self.assertEqual(rows[-1][0], "6")

    def test_an_old_querier_is_answered_in_its_language(self):
        """RFC 3376 7.2.1: once a version 2 query was heard, version 2 reports and leaves."""
        p = self.hear(self.ours, GROUP, "--leave")
        self.until_told("igmp.type", "0x22", "0x22")
        asked = self.kernels.run(*PROGRAM, "query", "-", KERNELS, "0", "--ttl", "1")
        self.assertEqual(asked.end(), "asked\n")
        self.until_told("igmp.type", "0x16")
        self.say(self.kernels, "go").end()
        self.ours.until(lambda: "left" in p.text(), "it to leave")
        self.until_told("igmp.type", "0x17")
        rows = self.seen("igmp", "igmp.type", "igmp.version", "ip.dst", "igmp.maddr")
        self.assertEqual(rows[:1], [["0x22", "3", "224.0.0.22", GROUP]])
        self.assertEqual(rows[-2:], [["0x16", "2", GROUP, GROUP], ["0x17", "2", "224.0.0.2", GROUP]])

    def test_a_program_that_is_killed_leaves(self):
        p = self.hear(self.ours)
        self.until_told("igmp.record_type", "4", "4")
        p.child.kill()
        self.ours.until(lambda: not self.ours.program_on_link(), "its end")
        self.until_told("igmp.record_type", "3")
        kinds = [row[0] for row in self.seen("igmp", "igmp.record_type")]
        self.assertEqual(kinds[:2], ["4", "4"])
        self.assertIn("3", kinds[2:])


if __name__ == "__main__":
    reason = lan.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
