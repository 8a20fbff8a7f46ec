"""How worker processes, and `manage.py runqless`, end."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""All jobs have ended."""
DIED: Final = 1
"""A process ended otherwise than it was told to."""
GAVE_BACK: Final = 3
"""The grace time was over, and jobs were given back to their queues."""
OUT_OF_MEMORY: Final = 72
TIMED_OUT: Final = 73
"""Of one process: it reached its memory bound, or had a job that did not heed its timeout. Another takes its place."""

RENEWED: Final = (OK, GAVE_BACK, OUT_OF_MEMORY, TIMED_OUT)
"""After these a process is started again without a pause."""

__all__ = ["DIED", "GAVE_BACK", "OK", "OUT_OF_MEMORY", "RENEWED", "TIMED_OUT"]
