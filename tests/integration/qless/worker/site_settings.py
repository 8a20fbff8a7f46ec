"""Settings of worker processes in tests: the settings of the demo, with the job queue of `TEST_QLESS`, and the caches
of `TEST_CACHES` in addition."""

from __future__ import annotations

import json
import os
from typing import Any

from project.settings import *  # noqa: F403
from project.settings import CACHES, LOGGING, RESTY_DJANGO

RESTY_DJANGO: dict[str, Any] = {**RESTY_DJANGO, "QLESS": json.loads(os.environ["TEST_QLESS"])}  # type: ignore[no-redef]
CACHES.update(json.loads(os.environ.get("TEST_CACHES", "{}")))
LOGGING["loggers"]["resty_django"] = {"level": "INFO"}
