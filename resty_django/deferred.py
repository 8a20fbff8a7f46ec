"""Functions that are imported when they are first called, so that rarely used parts do not slow down the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string


def deferred(path: str) -> Callable[..., Any]:
    """Return a function that imports the one at the dotted `path`, and calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return import_string(path)(*args, **kwargs)

    return call
