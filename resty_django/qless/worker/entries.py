"""From the class of a job to its function and its middleware."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from resty_django.conf import conf

from ..classes import find, function_of
from .chain import Middleware
from .middleware.database import adatabase, database
from .middleware.transaction import transaction
from .running import Entry

REFUSED: Final = Entry(lambda job: None)
"""Of a job that cannot be run."""


@lru_cache(maxsize=1000)
def entry_of(klass: str, queue: str) -> Entry:
    """How jobs of a class are run in a queue. Raises what `classes` raises, and `ImportError` for middleware.

    Outermost is the txid, then Django's database connections, the middleware of the settings, and that of the class or
    function, which it has as the attribute `middleware`. `keep_result`, an attribute too: what the function returns
    becomes the job's result, for `result_ttl` seconds.
    """
    found = find(klass)
    function = function_of(found, queue)
    is_async = iscoroutinefunction(function)
    own: Iterable[Middleware] = getattr(found, "middleware", ())
    middleware = (transaction, adatabase if is_async else database, *of_settings(), *own)
    return Entry(
        function, is_async, middleware, bool(getattr(found, "keep_result", False)), getattr(found, "result_ttl", None)
    )


def of_settings() -> tuple[Middleware, ...]:
    """Raises `ImportError`."""
    return tuple(import_string(path) for path in conf.qless.worker.middleware)


def _forget(**kwargs: Any) -> None:
    entry_of.cache_clear()


setting_changed.connect(_forget, dispatch_uid="resty_django.qless.worker.entries")

__all__ = ["REFUSED", "entry_of", "of_settings"]
