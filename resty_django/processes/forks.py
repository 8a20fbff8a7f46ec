"""Forks: child processes that run a function, and hooks around `os.fork()`, which reset state in child processes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def fork(work: Callable[[], int | None], on_error: Callable[[], object]) -> int:
    """Fork a process that runs `work` and exits with the code that it returns, if any. Return its pid. Raise `OSError`.

    `on_error` is called there if `work` raises an exception; the code is 1 then. This process must have no threads.
    """
    _flush()  # the child would write it once more
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = work() or 0
        except BaseException:
            on_error()
        finally:
            exit_now(code)
    return pid


def exit_now(code: int) -> NoReturn:
    """End this process, a fork, without the exit handlers that it has inherited."""
    logging.shutdown()
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def after_fork(
    child: Callable[[], object],
    *,
    before: Callable[[], object] | None = None,
    parent: Callable[[], object] | None = None,
) -> None:
    """Call `child` in every forked child process, in the order of registration.

    `before` is called before the fork, in reverse order, and `parent` after the fork in the parent process.
    """
    hooks = {"before": before, "after_in_parent": parent, "after_in_child": child}
    os.register_at_fork(**{moment: hook for moment, hook in hooks.items() if hook is not None})
