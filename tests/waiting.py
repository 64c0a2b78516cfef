"""Waiting for a condition, for scripts of the tests. Nothing is decided by how long it took: LIMIT is for what never comes."""

import time

LIMIT = 300                             # s; on a busy machine what must come may take long
PAUSE = 0.02                            # s at least from look to look


def after_look(began):
    """The time until the next look: who looks by a program takes no processor from who is looked at."""
    return max(PAUSE, 2 * (time.monotonic() - began))


def wait_until(what, condition, seconds=LIMIT):
    """What `condition` returns, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while (now := time.monotonic()) < deadline:
        result = condition()
        if result:
            return result
        time.sleep(after_look(now))
    raise AssertionError(f"did not come: {what}")
