"""Settings of worker processes in tests: those of the demo, with a job queue as `TEST_QLESS` says, and more caches
as `TEST_CACHES` does."""

from __future__ import annotations

import json
import os
from typing import Any

from project.settings import *  # noqa: F403
from project.settings import CACHES, LOGGING, RESTY_DJANGO

RESTY_DJANGO: dict[str, Any] = {**RESTY_DJANGO, "QLESS": json.loads(os.environ["TEST_QLESS"])}  # type: ignore[no-redef]
CACHES.update(json.loads(os.environ.get("TEST_CACHES", "{}")))
LOGGING["loggers"]["resty_django"] = {"level": "INFO"}
