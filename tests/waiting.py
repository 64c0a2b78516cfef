"""Waiting for a condition, for scripts of the tests. Nothing is decided by how long it took: LIMIT is for what never comes."""

import time

LIMIT = 300                             # s; on a busy machine what must come may take long


def wait_until(what, condition, seconds=LIMIT):
    """What `condition` returns, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"did not come: {what}")
