#!/usr/bin/env python3
"""The unet command beside live stacks: what it shows is what unmodified programs are doing."""

import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UNET_SOURCE"], "tests", "tools"))
from beside import LIMIT, UNET, Beside, look, unet, wait_until  # noqa: E402


class Live(Beside):
    def test_ss_shows_the_listener_and_who_holds_it(self):
        server = self.start_iperf3_server()
        row = self.listener()
        self.assertEqual((row["state"], row["protocol"]), ("LISTEN", "tcp"))
        self.assertEqual(row["holders"], f"iperf3/{server.pid}")
        wait_until("unetd's word of it", lambda: any(li["port"] == self.port for li in look("status")["listeners"]))
        self.assertIn("LISTEN", unet("ss"))

    def test_ping_is_answered_by_a_stack_of_this_host(self):
        self.start_iperf3_server()
        stack = look("ss", "--listening")[0]["stack"]
        for options in ((), ("--stack", str(stack), "--size", "30000")):
            said = json.loads(unet("ping", "--count", "5", "--interval", "0.05", "--timeout", str(LIMIT), "--json",
                                   *options, "127.0.0.1"))
            self.assertEqual((said["sent"], said["received"], said["errors"]), (5, 5, 0))
            self.assertEqual([p["seq"] for p in said["packets"]], list(range(5)))
        self.assertEqual(unet("ping", "--count", "1", "--stack", "1", "127.0.0.1", ok=(2,)), "")

    def test_ss_shows_a_transfer(self):
        self.start_iperf3_server()
        client = self.start_iperf3_client("-b", "300M")
        row = wait_until("a transfer", self.sending)[0]
        self.assertEqual(row["holders"], f"iperf3/{client.pid}")
        self.assertGreater(row["cwnd"], 0)
        self.assertGreater(row["segments_out"], 0)
        self.assertIn(row["congestion"], ("cubic", "reno"))
        self.assertGreater(look("stat")["counters"]["TCP_OUT"], 0)
        self.assertIn("ESTABLISHED", unet("ss", "--tcp"))
        later = wait_until("more bytes", lambda: [r for r in self.sending() if r["bytes_acked"] > row["bytes_acked"]])
        self.assertTrue(later)

    def test_ss_shows_what_a_bad_link_costs(self):
        self.start_iperf3_server()
        self.start("--fault", "loss=0.01,seed=7", "iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-t", "600")
        wait_until("retransmissions", lambda: [r for r in self.sending() if r["retransmits"] > 0])
        self.assertGreater(look("stat")["counters"]["TCP_RETRANS"], 0)

    def test_looking_disturbs_nobody(self):
        self.start_iperf3_server()
        client = self.start("iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-t", "2")
        while client.poll() is None:
            unet("ss", "--json", ok=(0, 1))
            unet("stat", "--json", ok=(0, 1))
        self.assertEqual(client.returncode, 0)

    def test_why_knows_a_program_and_a_process(self):
        server = self.start_iperf3_server()
        text = unet("why", "--json", "iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-t", "1", "-b", "10M")
        self.assertTrue(any(r["carried"] == "u-net" for r in json.loads(text)))
        rows = wait_until("the listener", lambda: [r for r in look("why", "--pid", str(server.pid))
                                                   if r["local"].endswith(f":{self.port}")])
        self.assertEqual([r["carried"] for r in rows], ["both"])

    def test_why_says_what_is_the_kernels(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            text = unet("why", "--json", "nc", "-z", "127.0.0.1", str(port), ok=(1,))
            rows = json.loads(text)
            self.assertTrue(rows)
            self.assertEqual({r["carried"] for r in rows}, {"kernel"})
            self.assertTrue(all(r["why"] for r in rows))
            with socket.create_connection(("127.0.0.1", port)):
                rows = look("why", "--pid", str(os.getpid()))
        self.assertTrue(any("without the shim" in r["why"] for r in rows))

    def test_why_says_that_a_process_has_another_unetd(self):
        server, mine = self.start_iperf3_server(), os.environ["UNET_DOMAIN"]
        self.listener()
        os.environ["UNET_DOMAIN"] = mine + "-other"
        rows = look("why", "--pid", str(server.pid))
        os.environ["UNET_DOMAIN"] = mine
        self.assertIn("another domain", next(r["why"] for r in rows if r["local"].endswith(f":{self.port}")))

    def test_an_interface_without_its_rdma_device_is_one_line(self):
        """The device is looked for again and again; everything else goes on, and nobody is told twice."""
        config, log = self.file("conf"), self.file("log")
        with open(config, "w", encoding="ascii") as f:
            f.write(f"[daemon]\nlog = {log}\nidle = 1\n[interface rxe99]\nprovider = verbs\naddress = 192.0.2.99/24\n")
        env = os.environ | {"UNET_CONFIG": config, "UNET_DOMAIN": f"rdma-{os.getpid()}"}
        unet("run", "nc", "-z", "127.0.0.1", str(self.port), ok=(1,), env=env)
        self.assertEqual(json.loads(unet("if", "--json", ok=(0, 1), env=env) or "[]"), [])
        count = lambda what: sum(what in line for line in self.lines(log))
        wait_until("unetd's end", lambda: 0 < count("ready: uid") == count("leaving"))
        told = [line for line in self.lines(log) if "rxe99" in line]
        self.assertEqual(len(told), count("ready: uid"), self.lines(log))       # a slow machine may make it two
        self.assertIn("no RDMA", told[0])

    def counted(self, stack, names, *tool, traffic):
        """What the stack's counters of these names went up by while a tool watched it from before the first packet to after the
        last, and the tool. The counters say so: they stand still when it begins, and when it has ended. On a machine that is
        slow enough something is still to come, and it is done again."""
        def now():
            counters = look("stat", "--stack", str(stack))["counters"]
            return {name: counters[name] for name in names}

        def attempt():
            first = self.quiet(stack, now)
            child = self.popen(*tool, "--stack", str(stack), "--json")
            self.watches(child, stack)
            before = now()
            traffic()
            after = self.quiet(stack, now)
            child.send_signal(signal.SIGINT)
            child.wait(LIMIT)
            if (first, after) != (before, now()):
                return None
            return {name: after[name] - before[name] for name in names}, child

        return wait_until("quiet before and behind", attempt)

    def test_pcap_counts_what_the_counters_count(self):
        self.start_iperf3_server()
        counted, capture = self.counted(
            self.listener()["stack"], ("NI_RX_MSGS", "NI_TX_MSGS"), "pcap", "--snap", "80", "--write", self.file("t.pcap"),
            traffic=lambda: unet("run", "iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-t", "2", "-b", "100M", "-l", "1400"))
        summary = json.loads("".join(self.lines(capture.said + ".out")))
        seen = summary["stacks"][0]
        self.assertEqual(seen["in"] + seen["out"] + seen["missed"], sum(counted.values()))
        if seen["missed"] == 0:                 # it may have had no processor for so long that the ring was full
            self.assertEqual(seen["in"], counted["NI_RX_MSGS"])
            self.assertEqual(seen["out"], counted["NI_TX_MSGS"])
        frames = subprocess.run(["tshark", "-r", self.file("t.pcap"), "-T", "fields", "-e", "frame.number"],
                                capture_output=True, timeout=LIMIT, check=True).stdout.split()
        self.assertEqual(len(frames), summary["packets"])

    def test_pcap_ends_by_itself(self):
        self.start_iperf3_server()
        stack = str(self.listener()["stack"])
        client = self.start_iperf3_client("-b", "20M")
        self.assertEqual(self.captured(stack, "--count", "25"), 25)
        self.captured(stack, "--seconds", "1")
        self.assertIsNone(client.poll(), "it ended before the captures did")

    def captured(self, stack, *options):
        done = subprocess.run([UNET, "pcap", *options, "--stack", stack, "--json", "--write", self.file("t.pcap")],
                              stdout=subprocess.PIPE, timeout=LIMIT, check=False)
        packets = json.loads(done.stdout)["packets"]
        self.assertEqual(done.returncode, 0 if packets else 1)
        return packets

    def watches(self, child, stack):
        """Until a command that watches says that it watches this stack."""
        wait_until(f"stack {stack} is watched", lambda: f"unet: stack {stack} is watched\n" in self.lines(child.said + ".err"))

    def test_trace_tells_what_the_counters_count(self):
        self.start("nc", "-l", "-k", "-p", str(self.port))
        wait_until("a listener", self.listener)
        counted, tracing = self.counted(
            self.listener()["stack"], ("TCP_IN", "TCP_OUT"), "trace",
            traffic=lambda: unet("run", "nc", "-N", "127.0.0.1", str(self.port), input=b"x" * 100000))
        seen = self.events(tracing)
        for name in ("TCP_IN", "TCP_OUT"):
            self.assertEqual(sum(e["event"] == name for e in seen), counted[name], name)
        states = [e["to"] for e in seen if e["event"] == "TCP_STATE"]
        self.assertEqual(states[:2], ["SYN-RECEIVED", "ESTABLISHED"])
        self.assertEqual([e["ns"] for e in seen], sorted(e["ns"] for e in seen))

    def test_trace_tells_at_its_end_what_it_had_no_time_for(self):
        self.start("nc", "-l", "-k", "-p", str(self.port))
        wait_until("a listener", self.listener)
        stack = self.listener()["stack"]
        tracing = self.popen("trace", "--stack", str(stack), "--json", "--events", "TCP_STATE")
        self.watches(tracing, stack)
        tracing.send_signal(signal.SIGSTOP)
        unet("run", "nc", "-N", "127.0.0.1", str(self.port), input=b"x")
        wait_until("its end", lambda: not [r for r in look("ss", "--tcp") or [] if r["local"].endswith(f":{self.port}")
                                           and r["state"] != "LISTEN"])
        tracing.send_signal(signal.SIGINT)
        tracing.send_signal(signal.SIGCONT)
        self.assertEqual(tracing.wait(LIMIT), 0)
        states = [e["to"] for e in self.events(tracing)]
        self.assertEqual((states[:2], states[-1]), (["SYN-RECEIVED", "ESTABLISHED"], "CLOSED"))

    def test_trace_chooses_events(self):
        self.start_iperf3_server()
        stack = self.listener()["stack"]
        tracing = self.popen("trace", "--json", "--events", "TCP_RETRANSMIT,TCP_STATE")
        self.watches(tracing, stack)
        self.start("--fault", "loss=0.01,seed=7", "iperf3", "-c", "127.0.0.1", "-p", str(self.port), "-t", "600")
        chosen = {"TCP_RETRANSMIT", "TCP_STATE"}
        wait_until("both kinds", lambda: chosen <= {e["event"] for e in self.events(tracing)})
        tracing.send_signal(signal.SIGINT)
        self.assertEqual(tracing.wait(LIMIT), 0)
        self.assertEqual({e["event"] for e in self.events(tracing)}, chosen)
        unet("trace", "--events", "NOTHING", ok=(2,))

    def test_pcap_waits_for_nothing_and_has_it_all(self):
        """It gets no processor from before the program's first packet to long after its last, and has all of them."""
        stops = f"kill -STOP $PPID; printf much | nc -N 127.0.0.1 {self.port}; echo done"
        self.start("nc", "-l", "-k", "-p", str(self.port))
        wait_until("a listener", self.listener)
        capture = self.popen("pcap", "--json", "--write", self.file("t.pcap"), "sh", "-c", stops)
        wait_until("the program's end", lambda: self.lines(capture.said + ".out") == ["done\n"])
        time.sleep(3)                           # a keeper that did not wait would have let go of the stack
        capture.send_signal(signal.SIGCONT)
        self.assertEqual(capture.wait(LIMIT), 0)
        text = subprocess.run(["tshark", "-r", self.file("t.pcap"), "-T", "fields", "-e", "tcp.payload"],
                              capture_output=True, timeout=LIMIT, check=True).stdout.decode()
        self.assertIn(b"much".hex(), text)

    def test_pcap_holds_what_was_sent(self):
        data = random.Random(7).randbytes(300000)
        with open(self.file("data"), "wb") as f:
            f.write(data)
        with open(self.file("received"), "wb") as out, open(self.file("data"), "rb") as f:
            server = self.start("nc", "-l", "-p", str(self.port), stdout=out)
            wait_until("a listener", self.listener)
            unet("pcap", "--write", self.file("t.pcap"), "nc", "-N", "127.0.0.1", str(self.port), stdin=f)
            server.wait(LIMIT)
        with open(self.file("received"), "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).hexdigest(), hashlib.sha256(data).hexdigest())
        text = subprocess.run(["tshark", "-r", self.file("t.pcap"), "-q", "-z", "follow,tcp,raw,0"],
                              capture_output=True, timeout=LIMIT, check=True).stdout.decode()
        lines = [line.strip() for line in text.splitlines()]
        payload = "".join(line for line in lines if line and all(c in "0123456789abcdef" for c in line))
        self.assertEqual(hashlib.sha256(bytes.fromhex(payload)).hexdigest(), hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    unittest.main(verbosity=2)
