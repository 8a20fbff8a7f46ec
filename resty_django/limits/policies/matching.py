"""Matching of requests with policies: by path, route, view and method."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from django.http import HttpRequest
from django.urls import ResolverMatch

from ..callers.exemptions import limited_methods

TextTest: TypeAlias = Callable[[str], re.Match[str] | None]
"""Tests whether a text matches a pattern."""


class Match:
    """The conditions of a policy, all of which a request must meet. Without path, route and view, none matches."""

    __slots__ = ("_path", "_route", "_view", "any", "methods")

    def __init__(self, path: str, route: str, view: str, methods: str) -> None:
        self._path = pattern(path)
        self._route = pattern(route)
        self._view = pattern(view)
        self.methods = limited_methods(methods.split())
        self.any = bool(path or route or view)

    def fits(self, request: HttpRequest, match: ResolverMatch | None) -> bool:
        if not self.any or (self.methods and request.method not in self.methods):
            return False
        if self._path is not None and not self._path(request.path_info):
            return False
        if self._route is not None and not (match is not None and self._route(match.view_name or "")):
            return False
        return self._view is None or (match is not None and self._view(dotted(match.func)) is not None)


def any_pattern(texts: Sequence[str]) -> TextTest | None:
    """Return a function that tests strings against all patterns at once; None for a single pattern, or if one is ""."""
    return combined_pattern(texts) if len(texts) > 1 and all(texts) else None


def combined_pattern(texts: Sequence[str]) -> TextTest | None:
    """Return a function that tests strings against all patterns at once, or None if there are none."""
    return re.compile("|".join(_expression(text) for text in texts)).match if texts else None


@functools.lru_cache(maxsize=1024)
def pattern(text: str) -> TextTest | None:
    """Return a function that tests strings against a pattern, or None for "". * matches any characters.

    It runs in linear time, so that a client cannot slow it down with a path.
    """
    return re.compile(_expression(text)).match if text else None


def _expression(text: str) -> str:
    return fnmatch.translate(re.sub(r"[?[]", lambda special: f"[{special[0]}]", text))


def dotted(view: object) -> str:
    """Return the dotted import path of a view; of a class-based view, the path of its class."""
    while isinstance(view, functools.partial):
        view = view.func
    target = getattr(view, "view_class", None) or getattr(view, "cls", None) or view
    if not hasattr(target, "__qualname__"):
        target = type(target)
    return f"{target.__module__}.{target.__qualname__}"
