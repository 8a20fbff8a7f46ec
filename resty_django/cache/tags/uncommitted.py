"""Invalidations that wait for the commit of a transaction."""

from __future__ import annotations

from collections.abc import Collection

from django.db import connections


def are_uncommitted(tags: Collection[str]) -> bool:
    """Return whether a transaction of this thread is going to invalidate one of the tags.

    The data that a callback has read may be rolled back, so other processes must not see it.
    """
    names = frozenset(tags)
    return any(
        function.invalidates(names)
        for connection in connections.all(initialized_only=True)
        for _, function, *_ in connection.run_on_commit
        if hasattr(function, "invalidates")
    )
