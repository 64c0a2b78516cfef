#!/usr/bin/env python3
"""The Split-C programs compute what a serial run does, for 1, 2, 4 and 8 processors; and how a job ends."""

import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.environ["UNET_BUILD"]
sys.path.append(os.path.join(os.environ["UNET_SOURCE"], "tests"))
from long_run import LONG  # noqa: E402

os.environ["UNET_DOMAIN"] = f"am-{os.getpid()}"         # a unetd of our own
UNET = os.path.join(BUILD, "tools", "unet")


def program(name):
    return os.path.join(BUILD, "examples", "splitc", "splitc_" + name)


def job(ranks, *command, options=()):
    return subprocess.run([UNET, "am", "run", "-n", str(ranks), *options, *command], capture_output=True, text=True, check=False)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().split()[2] != "Z"
    except OSError:
        return False


RUNS = [("mm", "--size", "64"), ("cc", "--size", "40"), ("cg", "--size", "24"),
        ("em3d", "--size", "60", "--variant", "get"), ("em3d", "--size", "60", "--variant", "store"),
        *[(sort, "--size", "5000", "--variant", v, "--keys", k) for sort in ("ssort", "rsort") for v in ("small", "bulk")
          for k in ("uniform", "gauss", "zero", "bucket", "stagger", "same")]]
EACH = RUNS[:5] + RUNS[5::6]            # each program and variant


class Programs(unittest.TestCase):
    def right(self, ranks, run, options=()):
        r = job(ranks, program(run[0]), *run[1:], options=options)
        said = f"{ranks} processors, {' '.join(run)}: {r.stdout}{r.stderr}"
        self.assertEqual(r.returncode, 0, said)
        self.assertEqual(len(r.stdout.splitlines()), 1, said)
        self.assertTrue(r.stdout.rstrip().endswith(" right"), said)
        self.assertIn(f"processors {ranks} ", r.stdout)

    def test_shared_memory(self):
        for ranks in (1, 2, 4, 8):
            for run in RUNS if LONG or ranks == 4 else EACH:
                self.right(ranks, run)

    def test_through_unetd(self):
        for ranks in (1, 2, 4, 8) if LONG else (2, 4):
            for run in EACH:
                self.right(ranks, run, options=["--unetd"])

    def test_odd_numbers(self):
        for run in RUNS[:5]:
            self.right(3, run)
            self.right(7, run)

    def test_gam(self):
        for ranks in (1, 2, 5):
            for options in ([], ["--unetd"]):
                r = job(ranks, os.path.join(BUILD, "tests", "am", "am_gam_prog"), options=options)
                self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
                self.assertEqual(sorted(r.stdout.splitlines()), [f"node {i} of {ranks}: right" for i in range(ranks)])

    def test_gam_who_waits_in_a_handler_is_told(self):
        r = job(2, os.path.join(BUILD, "tests", "am", "am_gam_prog"), "wait")
        self.assertEqual(r.returncode, 1)
        self.assertRegex(r.stderr, "gam: node [01]: am_wait_for: Resource deadlock avoided")

    def test_every_call_of_splitc(self):
        for ranks in (1, 2, 3, 5, 8):
            for options in ([], ["--unetd"]):
                r = job(ranks, os.path.join(BUILD, "tests", "am", "am_splitc_prog"), options=options)
                self.assertEqual((r.returncode, r.stdout), (0, f"processors {ranks}: right\n"), r.stderr)

    def test_first_programs(self):
        for ranks in (1, 2, 4):
            for name, said in (("counter", f"{ranks}000 numbers taken, the highest is {ranks}000\n"), ("pi_gam", "pi is about 3.141593\n"),
                               ("heat_splitc", "heat 2473.605575\n")):
                r = job(ranks, os.path.join(BUILD, "examples", "am", "am_" + name))
                self.assertEqual((r.returncode, r.stdout), (0, said), r.stderr)

    def test_by_hand_it_is_one_processor(self):
        r = subprocess.run([program("rsort"), "--size", "1000"], capture_output=True, text=True, check=False)
        self.assertIn("processors 1 ", r.stdout)
        self.assertTrue(r.stdout.rstrip().endswith(" right"), r.stdout + r.stderr)


class Jobs(unittest.TestCase):
    def test_output_by_lines_with_ranks(self):
        r = job(3, "sh", "-c", "echo one $UNET_AM_RANK; printf 'two %s' $UNET_AM_RANKS", options=["--label"])
        self.assertEqual(r.returncode, 0)
        self.assertEqual(sorted(r.stdout.splitlines()),
                         sorted(f"[{i}] {line}" for i in range(3) for line in (f"one {i}", "two 3")))

    def test_a_rank_that_fails_ends_the_job(self):
        r = job(3, "sh", "-c", "[ $UNET_AM_RANK = 1 ] && exit 7; exec sleep 1000")
        self.assertEqual(r.returncode, 1)
        self.assertIn("rank 1 ended with status 7", r.stderr)

    def test_a_rank_that_is_killed_ends_the_job(self):
        r = job(3, "sh", "-c", "[ $UNET_AM_RANK = 2 ] && kill -KILL $$; exec sleep 1000")
        self.assertEqual(r.returncode, 1)
        self.assertIn("rank 2 was killed: Killed", r.stderr)

    def test_a_rank_that_ignores_the_end_is_killed(self):
        r = job(2, "sh", "-c", "[ $UNET_AM_RANK = 1 ] && exit 7; trap '' TERM; while :; do sleep 1; done")
        self.assertEqual(r.returncode, 1)

    def test_a_processor_that_dies_takes_the_program_with_it(self):
        with subprocess.Popen([UNET, "am", "run", "-n", "2", "sh", "-c", "echo $$; exec " + program("rsort") + " --size 4000000"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
            os.kill(int(p.stdout.readline()), signal.SIGKILL)
            said = p.stderr.read()
            self.assertEqual(p.wait(), 1)
            # The other one may have seen it, and ended, before the kernel told of the death.
            self.assertRegex(said, "rank [01] (was killed: Killed|ended with status 1)")

    def test_a_killed_launcher_leaves_nobody(self):
        with subprocess.Popen([UNET, "am", "run", "-n", "2", "sh", "-c", "echo $$; exec sleep 1000"], stdout=subprocess.PIPE,
                              text=True) as p:
            ranks = [int(p.stdout.readline()) for _ in range(2)]
            p.kill()
            p.wait()
        while any(lives(pid) for pid in ranks):
            time.sleep(0.01)

    def test_usage(self):
        for args in (("--hosts", "a,b,c", "-n", "2"), ("--hosts", "-oProxyCommand=x", "-n", "2"), ("--hosts", "no.such.host.", "-n", "1")):
            self.assertEqual(subprocess.run([UNET, "am", "run", *args, "true"], capture_output=True, check=False).returncode, 1, args)
        for args in ((), ("walk",), ("run",), ("run", "-n", "0", "true"), ("run", "-n", "129", "true"), ("run", "-n", "2x", "true"),
                     ("run", "--odd", "true")):
            self.assertEqual(subprocess.run([UNET, "am", *args], capture_output=True, check=False).returncode, 2, args)
        self.assertEqual(job(2, "/no/such/program").returncode, 1)


class Odd(unittest.TestCase):
    """What processes do beside computing."""

    def job(self, what, ranks=3, options=()):
        return job(ranks, os.path.join(BUILD, "tests", "am", "am_odd"), what, options=options)

    def test_signals(self):
        for options in ([], ["--unetd"]):
            r = self.job("signals", options=options)
            self.assertEqual((r.returncode, r.stdout), (0, 3 * "right, interrupted\n"), r.stderr)

    def test_children(self):
        for options in ([], ["--unetd"]):
            r = self.job("forks", options=options)
            self.assertEqual((r.returncode, r.stdout), (0, 3 * "right\n"), r.stderr)

    def test_a_rank_that_exits_in_a_handler(self):
        for options in ([], ["--unetd"]):
            r = self.job("exits", ranks=2, options=options)
            self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
            self.assertIn("rank 1 ended with status 7", r.stderr)

    def test_a_rank_that_goes_without_a_word(self):
        for options in ([], ["--unetd"]):
            r = self.job("goes", ranks=2, options=options)
            left = re.search(r"^(\d+) is left$", r.stdout, re.M)
            self.assertTrue(left, r.stdout + r.stderr)
            os.kill(int(left[1]), signal.SIGKILL)       # it held nothing of the rank's that the other one waits for
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn("right, a rank is lost\n", r.stdout)


class Hostile(unittest.TestCase):
    """A rank that sends whatever it can: its own job is told, and a job beside it computes what it would have computed."""

    def beside(self, options):
        for seed in range(1, 6):
            with subprocess.Popen([UNET, "am", "run", "-n", "2", *options, os.path.join(BUILD, "tests", "am", "am_hostile"), "20000",
                                   str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
                r = job(2, program("rsort"), "--size", "2000", "--variant", "small", options=options)
                out, err = p.communicate()
            self.assertEqual(p.returncode, 0, err)
            self.assertRegex(out, "^told: ")
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            self.assertTrue(r.stdout.rstrip().endswith(" right"), r.stdout)

    def test_shared_memory(self):
        self.beside([])

    def test_at_the_same_switch(self):
        self.beside(["--unetd"])
        status = subprocess.run([UNET, "status"], capture_output=True, text=True, check=False)
        self.assertEqual(status.returncode, 0, status.stdout + status.stderr)


class Hosts(unittest.TestCase):
    """This host under several names; what starts ranks runs their command here, as ssh does elsewhere. Over RDMA: tests/vm/am.py."""

    def job(self, hosts, ranks, *command, by):
        return job(ranks, *command, options=["--label", "--hosts", hosts, "--at", "127.0.0.1", "--launch", by])

    def setUp(self):
        self.script = tempfile.NamedTemporaryFile("w", suffix=".sh")
        self.script.write('shift\nexec sh -c "$1"\n')
        self.script.flush()
        self.by = f"sh {self.script.name}"
        self.addCleanup(self.script.close)

    def test_numbers_words_and_input(self):
        r = self.job("a,b", 5, "sh", "-c", "echo $UNET_AM_RANK of $UNET_AM_RANKS \"$0\"; cat", "it's one", by=self.by)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(sorted(r.stdout.splitlines()), [f"[{i}] {i} of 5 it's one" for i in range(5)])

    def test_ranks_of_one_host_share_memory(self):
        r = self.job("a", 4, program("cg"), "--size", "24", by=self.by)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertTrue(r.stdout.rstrip().endswith(" right"), r.stdout)

    def test_without_a_device_it_says_so(self):
        r = self.job("a,b", 2, program("cg"), "--size", "24", by=self.by)
        self.assertEqual(r.returncode, 1)
        self.assertIn("cannot join the job", r.stderr)

    def test_a_rank_that_dies_ends_the_ranks_of_all_hosts(self):
        for how, said in (("exit 7", "rank 3 ended with status 7"), ("kill -KILL $$", "rank 3 was killed: Killed")):
            r = self.job("a,b", 4, "sh", "-c", f"[ $UNET_AM_RANK = 3 ] && {how}; exec sleep 1000", by=self.by)
            self.assertEqual(r.returncode, 1)
            self.assertIn(said, r.stderr)

    def test_a_host_that_cannot_be_reached_ends_the_job(self):
        r = self.job("a,b", 2, "sleep", "1000", by="sh -c 'exit 255'")
        self.assertEqual(r.returncode, 1)
        self.assertRegex(r.stderr, "the start of ranks on [ab] ended with status 255")

    def test_a_killed_launcher_leaves_nobody(self):
        with subprocess.Popen([UNET, "am", "run", "-n", "4", "--hosts", "a,b", "--at", "127.0.0.1", "--launch", self.by, "sh", "-c",
                               "echo $$; exec sleep 1000"], stdout=subprocess.PIPE, text=True) as p:
            ranks = [int(p.stdout.readline()) for _ in range(4)]
            p.kill()
            p.wait()
        while any(lives(pid) for pid in ranks):
            time.sleep(0.01)

    def test_the_key_is_in_no_command_line(self):
        with subprocess.Popen([UNET, "am", "run", "--hosts", "a", "--at", "127.0.0.1", "--launch", self.by, "sh", "-c",
                               "echo $UNET_AM_KEY; exec sleep 1000"], stdout=subprocess.PIPE, text=True) as p:
            key = p.stdout.readline().strip()
            self.assertRegex(key, "^[0-9a-f]{32}$")
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    with open(path, "rb") as f:
                        self.assertNotIn(key.encode(), f.read())
                except OSError:
                    continue
            p.kill()


if __name__ == "__main__":
    sys.exit(unittest.main())
