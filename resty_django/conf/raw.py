"""`RESTY_DJANGO` as written by the site, and the built-in names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.conf import settings

from .schema import SETTING

ALWAYS_DICTS: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "bans": {"SIZE": 8 * 1024 * 1024},
    "events": {"SIZE": 4 * 1024 * 1024},
    "limits": {"SIZE": 24 * 1024 * 1024},
}
"""Shared dictionaries that exist on every site, with values that differ from the defaults."""

ALWAYS_CACHES: Final[Mapping[str, Mapping[str, object]]] = {"default": {}}
"""Caches that exist on every site."""


def raw_settings() -> object:
    """Return the site's setting unchecked; it may be of any type."""
    return getattr(settings, SETTING, {})


def raw_section(key: str) -> object:
    """Return a section as set by the site; an empty dict if it is not set."""
    raw = raw_settings()
    return raw.get(key, {}) if isinstance(raw, Mapping) else {}
