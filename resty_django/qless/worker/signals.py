"""Signals of Django that a worker sends, in the process and the thread of the job."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

job_failed: Final = Signal()
"""A job raised an exception and fails. Arguments: `job`, `error`, and `group`, under which it is filed. `sender` is the
job's function. What a receiver raises is ignored."""

__all__ = ["job_failed"]
