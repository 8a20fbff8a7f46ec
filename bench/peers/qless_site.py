"""Settings of a site that has nothing but the job queue, for `qless_worker.py`."""

from __future__ import annotations

import os

SECRET_KEY = "bench"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "resty_django", "resty_django.qless"]
USE_TZ = True
RESTY_DJANGO = {"QLESS": {"URL": os.environ["BROKER"], "MODULES": ["qless_jobs"]}}
