"""Functions that are imported on their first call, so that rarely used components do not slow down startup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string


def deferred(path: str) -> Callable[..., Any]:
    """Return a function that imports and calls the function at the dotted `path`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return import_string(path)(*args, **kwargs)

    return call
