"""`RESTY_DJANGO` as the site wrote it, and what every site has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.conf import settings

from .schema import SETTING

ALWAYS_DICTS: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "events": {"SIZE": 4 * 1024 * 1024},
    "limits": {"SIZE": 24 * 1024 * 1024},
}
"""The shared dictionaries that every site has, with the values that differ from the defaults."""

ALWAYS_CACHES: Final[Mapping[str, Mapping[str, object]]] = {"default": {}}
"""The caches that every site has."""


def raw_settings() -> object:
    """Return what the site has set, of whatever type."""
    return getattr(settings, SETTING, {})


def raw_section(key: str) -> object:
    """Return a section as the site has set it; an empty dict where it has not."""
    raw = raw_settings()
    return raw.get(key, {}) if isinstance(raw, Mapping) else {}
