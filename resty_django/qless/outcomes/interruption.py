"""Exceptions raised in another thread, by which the run of a job is interrupted."""

from __future__ import annotations

import ctypes


def raise_in_thread(thread: int, kind: type[Exception]) -> None:
    """Make the thread raise `kind` at its next call of a Python function or end of a loop."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def checkpoint() -> None:
    """Raise a pending exception that `raise_in_thread` has set for this thread. The call itself is enough to raise it.

    The alternative, clearing the pending exception, makes Python 3.11 and 3.12 keep checking for it in all threads,
    which slows them down, and blocks a thread with a trace function (of a debugger or coverage.py) indefinitely.
    """
