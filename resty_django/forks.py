"""Hooks around `os.fork()`: what a process has to renew in its children."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def after_fork(
    child: Callable[[], Any],
    *,
    before: Callable[[], Any] | None = None,
    parent: Callable[[], Any] | None = None,
) -> None:
    """Call `child` in every process that this one forks, in the order of registration.

    `before` is called ahead of the fork, in reverse order, and `parent` after it in the process that forked.
    """
    hooks = {"before": before, "after_in_parent": parent, "after_in_child": child}
    os.register_at_fork(**{moment: hook for moment, hook in hooks.items() if hook is not None})
