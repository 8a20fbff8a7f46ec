"""Helpers for commands that have child processes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent() -> Callable[[], None]:
    """What a child of this process calls first after the fork, to be sent SIGTERM when this process ends in any way.

    Linux alone can do that; elsewhere the call does nothing. The library is loaded here, so that between fork and
    exec there is one call of C and nothing to lock.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
