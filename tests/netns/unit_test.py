#!/usr/bin/env python3
"""The system's unit: unetd does all that it does with no more than the unit leaves it, as far as that can be had without systemd:
capabilities, no new privileges, a file system that is not to be written. The rest of the unit is judged by systemd-analyze."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lan  # noqa: E402
from lan_test import KERNELS, OURS, PORT  # noqa: E402
from share_test import ALICE, BOB, Sharing  # noqa: E402

UNIT = os.path.join(os.environ["UNET_SOURCE"], "packaging", "unetd.service.in")
EXPOSURE = 45                           # tenths, at most, by systemd-analyze

# Programs of the unit's file system: its own directory under /run can be written; here, so can the test's.
READ_ONLY = """
mkdir -p /run/unet
for dir in /run/unet "$1"; do mount --bind "$dir" "$dir" || exit 1; done
mount -o remount,bind,ro / || exit 1
shift
exec "$@"
"""


def unit():
    """Its settings; one that is there more than once has all of its values."""
    settings = {}
    with open(UNIT, encoding="ascii") as f:
        for key, value in re.findall(r"^(\w+)=(.*)$", f.read(), re.M):
            settings[key] = " ".join(filter(None, (settings.get(key), value)))
    return settings


def fence(directory):
    settings = unit()
    left = ",".join("+" + name.removeprefix("CAP_").lower() for name in settings["CapabilityBoundingSet"].split())
    assert settings["NoNewPrivileges"] == "yes" and settings["ProtectSystem"] == "strict"
    return ("unshare", "--mount", "sh", "-c", READ_ONLY, "sh", directory, "setpriv",
            f"--bounding-set=-all,{left}", "--inh-caps=-all", "--no-new-privs")


class Fenced(Sharing):
    provider = "auto"

    def setUp(self):
        self.ours = self.host("a", OURS)
        self.other = self.host("b", KERNELS)
        self.ours.fence = fence(self.ours.dir)
        lan.cable(self.ours, self.other)
        self.ours.become_ours(provider=self.provider)
        self.other.become_kernels()

    def test_it_is_fenced(self):
        said = self.ours.sh("sh", "-c", "grep -h -e CapBnd -e CapEff -e NoNewPrivs /proc/$1/status", "sh",
                            re.search(r"unetd\[(\d+)\] ready", self.ours.logged())[1])
        self.assertRegex(said, r"CapEff:\t0+\n")                # the broker's
        self.assertRegex(said, r"NoNewPrivs:\t1")
        bounds = int(re.search(r"CapBnd:\t([0-9a-f]+)", said)[1], 16)
        self.assertLessEqual(bin(bounds).count("1"), len(unit()["CapabilityBoundingSet"].split()))     # who runs this may have fewer
        self.assertFalse(bounds & (1 << 19 | 1 << 1), "CAP_SYS_PTRACE or CAP_DAC_OVERRIDE")

    def test_users_share_the_interface(self):
        first = self.serve_peer(self.ours, "many-listen", PORT + 10, 1000, user=ALICE)
        self.reached(PORT + 10)
        second = self.serve_peer(self.ours, "many-listen", PORT + 11, 1000, user=BOB)
        self.reached(PORT + 10, PORT + 11)
        for p in (first, second):
            self.assert_ours(p)
            self.assertIsNone(p.child.poll())
        self.iperf3(self.other, self.ours)

    def test_programs_of_one_host(self):
        self.iperf3(self.ours, self.ours)
        low = self.ours.serve(99, "nc", "-l", "-p", "99")       # a port of root's
        self.ours.run("nc", "-N", OURS, "99").end()
        low.end()


class FencedPacket(Fenced):
    """A packet socket in a namespace of its own."""

    provider = "packet"


class Analyzed(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.file = os.path.join(self.dir.name, "unetd.service")
        with open(UNIT, encoding="ascii") as f, open(self.file, "w", encoding="ascii") as out:
            out.write(f.read().replace("@UNET_LIBEXEC@", os.path.dirname(lan.UNETD)))

    def analyze(self, *argv):
        done = subprocess.run(["systemd-analyze", *argv, self.file], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_verify(self):
        code, said = self.analyze("verify", "--man=no")
        others = ("/lib/systemd/", "/usr/lib/systemd/", "/etc/systemd/", "/run/systemd/")     # units that are installed here
        self.assertEqual((code, [line for line in said.splitlines() if not line.startswith(others)]), (0, []))

    def test_exposure(self):
        code, said = self.analyze("security", "--offline=true", f"--threshold={EXPOSURE}")
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    if why := lan.why_not() or lan.missing("setpriv", "iperf3"):
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main(verbosity=2)
