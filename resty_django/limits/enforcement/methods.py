"""The methods of requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")


def limited_methods(methods: Iterable[str]) -> frozenset[str]:
    """Return the methods to which a limit for `methods` applies: GET includes HEAD, which runs the same view."""
    names = frozenset(methods)
    return names | {"HEAD"} if "GET" in names else names
