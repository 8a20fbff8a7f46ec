"""Which requests a policy applies to by itself: by path, by route, by view, and by method."""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import Any

from django.http import HttpRequest
from django.urls import ResolverMatch


class Match:
    """What a policy says of requests; `fits` asks for all of it. Without path, route and view it fits none."""

    __slots__ = ("_path", "_route", "_view", "any", "methods")

    def __init__(self, path: str, route: str, view: str, methods: str) -> None:
        self._path = pattern(path)
        self._route = pattern(route)
        self._view = pattern(view)
        self.methods = frozenset(methods.split())
        self.any = bool(path or route or view)

    def fits(self, request: HttpRequest, match: ResolverMatch | None) -> bool:
        if not self.any or (self.methods and request.method not in self.methods):
            return False
        if self._path is not None and not self._path(request.path_info):
            return False
        if self._route is not None and not (match is not None and self._route(match.view_name or "")):
            return False
        return self._view is None or (match is not None and self._view(dotted(match.func)) is not None)


@functools.lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    """The test of a text, where * stands for any characters and nothing else is special; None for "".

    Its time grows with the length of the text alone, whatever is asked.
    """
    if not text:
        return None
    quoted = re.sub(r"[?[]", lambda found: f"[{found[0]}]", text)
    return re.compile(fnmatch.translate(quoted)).match


def dotted(view: Any) -> str:
    """The name under which a view can be imported; for one of a class, that of the class."""
    while isinstance(view, functools.partial):
        view = view.func
    found = getattr(view, "view_class", None) or getattr(view, "cls", None) or view
    if not hasattr(found, "__qualname__"):
        found = type(found)
    return f"{found.__module__}.{found.__qualname__}"


__all__ = ["Match", "dotted", "pattern"]
