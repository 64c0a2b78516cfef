#!/usr/bin/env python3
"""Programs start and work under the shim of this build, with the runtimes of sanitizers too, whose first calls come before any of ours."""

import os
import re
import subprocess
import sys
import unittest

BUILD = os.environ["UNET_BUILD"]
SHIM = os.path.join(BUILD, "sock", "shim", "libunet_preload.so")
CALLS = os.path.join(BUILD, "tests", "shim", "shim_calls")
SCENES = ("read_write", "fork", "exec", "numbers_lowered", "landlock_connects")
LIMIT = 300                       # for what must end


def runtime():
    """The library that has to be in a program before the shim of a build with sanitizers; or None."""
    done = subprocess.run(("ldd", SHIM), capture_output=True, text=True, check=False)
    found = re.search(r"lib[at]san\.so\S* => (\S+)", done.stdout)
    return found[1] if found else None


class Start(unittest.TestCase):
    def run_it(self, *argv, preload=""):
        env = dict(os.environ, UNET_DOMAIN=f"start-{os.getpid()}", UNET_LIBEXEC=os.path.join(BUILD, "unetd"), UNET_LOG="1")
        options = env.get("ASAN_OPTIONS", "")
        env.update(ASAN_OPTIONS=f"{options}:detect_leaks=0", LD_PRELOAD=preload)
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)

    def test_scenes_print_what_they_print_over_the_kernel(self):
        first = runtime()
        for name in SCENES:
            with self.subTest(name):
                kernel = self.run_it(CALLS, name)
                ours = self.run_it(CALLS, name, preload=f"{first} {SHIM}" if first else SHIM)
                self.assertEqual((ours.returncode, ours.stdout), (kernel.returncode, kernel.stdout), ours.stderr)
                self.assertIn("ours", ours.stderr)

    def test_a_program_that_is_not_of_this_build(self):
        first = runtime()
        done = self.run_it(sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_AS))",
                           preload=f"{first} {SHIM}" if first else SHIM)
        self.assertEqual((done.returncode, done.stdout), (0, "(-1, -1)\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
