"""URLs and names of the site in `conftest.py`."""

from __future__ import annotations

import base64
from typing import Final

PATHS: Final = ("/api/ids/", "/api/jobs/")
"""The parts of the API."""
KNOWN: Final = {
    "/api/ids/": ["order"],
    "/api/jobs/queues/": ["mail"],
    "/api/jobs/jobs/": ["failed-1", "waiting-1", "complete-1"],
    "/api/jobs/failed/": ["mail-Timeout"],
}
"""Existing names by the beginning of their URLs."""
AUTHORIZATION: Final = "Basic " + base64.b64encode(b"admin:password").decode()


def known_names(path: str) -> list[str]:
    return next((names for start, names in KNOWN.items() if path.startswith(start)), [])
