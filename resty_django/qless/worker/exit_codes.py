"""Exit codes of worker processes and of `manage.py runqless`."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""All jobs have ended."""
DIED: Final = 1
"""A process died, or ended with another code."""
GAVE_BACK: Final = 3
"""The grace period ended, and jobs were returned to their queues."""
OUT_OF_MEMORY: Final = 72
TIMED_OUT: Final = 73
"""Codes of a single process: it reached its memory limit, or a job ignored its timeout. Another process replaces it."""
STOPPED: Final = 74
"""Code of a single process that an operator has stopped. No other process replaces it."""

CONFIG: Final = 78
"""Of one process: the code of the site must be changed first, so that all processes stop."""

RENEWED: Final = (OK, GAVE_BACK, OUT_OF_MEMORY, TIMED_OUT)
"""Codes after which a process is replaced without a pause."""
