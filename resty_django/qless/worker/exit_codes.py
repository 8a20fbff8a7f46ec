"""Exit codes of worker processes and of `manage.py runqless`."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""All jobs have ended."""
DIED: Final = 1
"""A process died, or ended with another code."""
GAVE_BACK: Final = 3
"""The grace time was over, and jobs were given back to their queues."""
OUT_OF_MEMORY: Final = 72
TIMED_OUT: Final = 73
"""Of one process: it reached its memory bound, or had a job that ignored its timeout. Another process replaces it."""

CONFIG: Final = 78
"""Of one process: the code of the site must be changed first, so that all processes stop."""

RENEWED: Final = (OK, GAVE_BACK, OUT_OF_MEMORY, TIMED_OUT)
"""Codes after which a process is started again without a pause."""
