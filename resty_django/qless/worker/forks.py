"""Processes forked by jobs: they end with the worker, and do not continue its work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Final

from resty_django.processes.forks import after_fork, exit_now

HANDLED: Final = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT),
)
"""Signals that a worker process handles through its loop, which a fork does not have."""

_forking: Final = threading.local()
"""The signal mask of a thread before it forked."""
_pipe: list[int] = []
"""Read end and write end. Only the worker has the write end, so reading ends when the worker dies, however it dies."""


def terminate_forks_at_end() -> None:
    """Arrange SIGTERM, when this process ends, for processes that jobs fork from now on. Called once per process."""
    if not _pipe:
        after_fork(_after_fork, before=_hold_signals, parent=_release_signals)
        _pipe.extend(os.pipe())


def exit_fork() -> None:
    """Exit this process, a fork of a worker; with code 1 and a traceback if an exception is being handled."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    exit_now(0 if error is None else 1)


def _hold_signals() -> None:
    """Block the signals that the worker handles, so that one sent to a new fork waits until it has its own handlers."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork() -> None:
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    _release_signals()
    reader, *writer = _pipe
    for end in writer:  # empty in a fork of a fork
        os.close(end)
    del _pipe[1:]
    threading.Thread(target=_end_with_worker, args=(reader,), name="qless-fork", daemon=True).start()


def _end_with_worker(reader: int) -> None:
    os.read(reader, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5.0)
    os.kill(os.getpid(), signal.SIGKILL)
