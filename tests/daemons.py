"""unetd and the keepers of this run's domain, for scripts of the tests."""

import contextlib
import os


def daemons(name):
    """The processes called `name` whose environment names our domain (UNET_DOMAIN): arguments need not."""
    mine, found = f"UNET_DOMAIN={os.environ['UNET_DOMAIN']}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm", encoding="ascii") as comm, open(f"/proc/{pid}/environ", "rb") as environ:
                if comm.read().strip() == name and mine in environ.read().split(b"\0"):
                    found.append(int(pid))
    return found
