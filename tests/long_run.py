"""What ./check --long plays and ./check leaves out (UNET_LONG=1): what repeats a scene by another way, in another size or order."""

import os

LONG = bool(os.environ.get("UNET_LONG"))


def long_run(scene):
    """A scene, or a class of them, that is played then only."""
    return scene if LONG else None
