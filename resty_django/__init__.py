"""Order numbers, rate limits, caching, background jobs and request IDs for Django, all visible in the admin.

`INSTALLED_APPS += resty_django.ALL_APPS` installs everything. A site may also list single apps; `resty_django` must be
among them.
"""

from __future__ import annotations

from typing import Final

__version__ = "0.1.0"
"""The version of the package."""

ALL_APPS: Final[tuple[str, ...]] = (
    "resty_django",
    "resty_django.ids",
    "resty_django.limits",
    "resty_django.cache",
    "resty_django.qless",
)
"""The apps of this package, for `INSTALLED_APPS`."""

__all__ = ["ALL_APPS", "__version__"]
