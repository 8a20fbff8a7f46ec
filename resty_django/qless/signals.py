"""Signals that workers send, in the process and the thread of the job."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

job_failed: Final = Signal()
"""Sent when a job fails because of an exception.

Arguments: `job`, `error`, and `group`, under which it failed. `sender` is the job's function. Errors of receivers are
ignored.
"""
