"""Unique IDs built from rules: `next_id("order", app="shop")`, `next_ids("order", 3, app="shop")`.

The rules are rows of `IdRule`; see docs/reference/ids/ for rules, the service and its guarantees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .service import amonitor, anext_id, anext_ids, monitor, next_id, next_ids, stop

__all__ = ["amonitor", "anext_id", "anext_ids", "monitor", "next_id", "next_ids", "stop"]


def __getattr__(name: str) -> Any:
    # The service needs loaded models; this package is imported before they are loaded.
    if name in __all__:
        from . import service

        attribute = getattr(service, name)
        globals()[name] = attribute
        return attribute
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
