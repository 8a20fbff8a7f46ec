"""Conditions of policies, compared with recorded requests, of which only the method and the route are known.

A route is the text of a URL pattern, such as "api/items/<int:pk>/" or "^api/items/(?P<pk>[0-9]+)/$". A condition is met
by all requests with the route (True), by none (False), or by some of them (None).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from django.contrib.admindocs.views import simplify_regex
from django.urls import get_resolver

from ..enforcement.methods import limited_methods
from .lines import lines_of
from .matching import dotted, pattern
from .spec import PolicySpec

Answer: TypeAlias = "bool | None"

_PLACEHOLDER: Final = re.compile(r"<([^<>]*)>")
_REGEX: Final = re.compile(r"[\\()\[\]{}|+*]")
"""Characters of a regular expression that `simplify_regex` has not replaced."""
_SOMETHING: Final = "\0"
"""Any text in the place of a placeholder: only * matches it."""
_ANY: Final = "any"
_SEGMENT: Final = "segment"
"""Parts of a route: any text, and any text without a slash."""


class View(NamedTuple):
    """The view of a route: the name of the URL with its namespaces, and the dotted name of the function or class."""

    name: str
    function: str


def views_by_route() -> dict[str, View]:
    """Return the views of the site's URLs, by route."""
    views: dict[str, View] = {}
    for route, view in _views(get_resolver(), "", ()):
        views.setdefault(route, view)
    return views


def _views(resolver: Any, prefix: str, namespaces: tuple[str, ...]) -> Iterator[tuple[str, View]]:
    for entry in resolver.url_patterns:
        text = str(entry.pattern)
        route = prefix + text.removeprefix("^") if prefix else text
        if hasattr(entry, "url_patterns"):
            yield from _views(entry, route, (*namespaces, entry.namespace) if entry.namespace else namespaces)
        else:
            yield route, View(":".join([*namespaces, entry.name or entry.lookup_str]), dotted(entry.callback))


class Scope:
    """Whether an edited policy still applies to the recorded requests of the saved one.

    `views`: see `views_by_route`.
    """

    def __init__(self, saved: PolicySpec, edited: PolicySpec, views: Mapping[str, View]) -> None:
        self._saved = saved
        self._edited = edited
        self._views = views
        self._methods = limited_methods(edited.methods.split())
        self._exempt = lines_of(edited.exempt_paths)
        self.includes = functools.cache(self._includes)
        """Return whether the edited policy applies to requests with a target: all, none, or some of them."""

    def _includes(self, target: str) -> Answer:
        method, space, text = target.partition(" ")
        route = text if space else None
        fits_method = not self._methods or (method in self._methods if method else None)
        exempt = _either(path_fits(path, route) for path in self._exempt)
        return _both([fits_method, None if exempt is None else not exempt, self._limits(route)])

    def _limits(self, route: str | None) -> Answer:
        """Return whether the policy applies to a route. Requests that did not fit the saved one came from code."""
        after = self._fits(self._edited, route)
        return after if after is True or self._fits(self._saved, route) is not False else True

    def _fits(self, spec: PolicySpec, route: str | None) -> Answer:
        if not spec.matches_requests:
            return False
        view = None if route is None else self._views.get(route)
        return _both(
            [
                path_fits(spec.path, route),
                not spec.route or (None if view is None else pattern(spec.route)(view.name) is not None),
                not spec.view or (None if view is None else pattern(spec.view)(view.function) is not None),
            ]
        )


@functools.lru_cache(4096)
def path_fits(text: str, route: str | None) -> Answer:
    """Return whether the paths of a route (None: unknown) match a pattern in which * stands for any characters."""
    if not text:
        return True
    simple = "" if route is None else simplify_regex(route)
    if not simple or _REGEX.search(simple):
        return None
    if route is not None and route.startswith("/"):  # its paths begin with //, which `simplify_regex` shortens
        simple = f"/{simple}"
    if pattern(text)(_PLACEHOLDER.sub(_SOMETHING, simple)):
        return True
    return None if _overlap(text, tuple(_parts(simple))) else False


def _parts(simple: str) -> Iterator[str]:
    """Yield the characters of a simplified route, and for each placeholder what it stands for."""
    end = 0
    for placeholder in _PLACEHOLDER.finditer(simple):
        yield from simple[end : placeholder.start()]
        converter, colon, _ = placeholder[1].partition(":")
        yield _SEGMENT if colon and converter != "path" else _ANY
        end = placeholder.end()
    yield from simple[end:]


def _overlap(text: str, parts: tuple[str, ...]) -> bool:
    """Return whether some text fits both a pattern and the parts of a route."""
    reached, seen = [(0, 0)], set[tuple[int, int]]()
    while reached:
        position = place, at = reached.pop()
        if position in seen:
            continue
        seen.add(position)
        if place == len(text) and at == len(parts):
            return True
        char = text[place] if place < len(text) else ""
        part = parts[at] if at < len(parts) else ""
        if char == "*":
            reached.append((place + 1, at))
            if part:
                reached.append((place, at + 1))
        elif part in (_ANY, _SEGMENT):
            reached.append((place, at + 1))
            if char and (part == _ANY or char != "/"):
                reached.append((place + 1, at))
        elif char and char == part:
            reached.append((place + 1, at + 1))
    return False


def _both(answers: Iterable[Answer]) -> Answer:
    """Return whether all conditions are met."""
    known = list(answers)
    return False if False in known else None if None in known else True


def _either(answers: Iterable[Answer]) -> Answer:
    """Return whether one of the conditions is met."""
    known = list(answers)
    return True if True in known else None if None in known else False
