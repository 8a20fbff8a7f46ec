"""Hooks around `os.fork()`, which reset state in child processes."""

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
    """Call `child` in every forked child process, in the order of registration.

    `before` is called before the fork, in reverse order, and `parent` after the fork in the parent process.
    """
    hooks = {"before": before, "after_in_parent": parent, "after_in_child": child}
    os.register_at_fork(**{moment: hook for moment, hook in hooks.items() if hook is not None})
