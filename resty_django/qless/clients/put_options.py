"""Options of `put`, as the core expects them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ..errors import InvalidArgument


def class_name(klass: Any) -> str:
    """Return the name under which a job class is put: a string unchanged, or the dotted path of a class or function."""
    if isinstance(klass, str):
        return klass
    module, name = getattr(klass, "__module__", None), getattr(klass, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        raise InvalidArgument(
            f"{klass!r} cannot be the class of a job. "
            "Pass a dotted path, or a class or function at the top level of a module."
        )
    return f"{module}.{name}"


DEPENDS_PER_CALL: Final = 1000
"""Maximum number of dependencies in one call."""
DEPENDS_AT_ONCE: Final = 100
"""Number of dependencies that a call writes at once; `Client.tidy` and the workers write the rest."""


def text_list(name: str, values: Iterable[str]) -> list[str]:
    """Return a list of strings. Raises `InvalidArgument` for a single string."""
    if isinstance(values, str):
        raise InvalidArgument(f"{name} must be a list of strings, not the string {values!r}. Write [{values!r}].")
    return [str(element) for element in values]


def list_text(name: str, values: Iterable[str]) -> str:
    """Return a list of strings as JSON; bytes that are not UTF-8 are sent unchanged."""
    elements = text_list(name, values)
    try:
        return msgspec.json.encode(elements).decode()
    except UnicodeEncodeError:
        return json.dumps(elements, ensure_ascii=False)


def options_of(
    priority: float | None, tags: Iterable[str] | None, retries: float | None, depends: Iterable[str] | None
) -> tuple[Any, ...]:
    """Return all four options as every client sends them. Defaults: 0, no tags, 5, no dependencies."""
    return (
        *("priority", 0 if priority is None else priority),
        *("tags", "[]" if not tags else list_text("tags", tags)),
        *("retries", 5 if retries is None else retries),
        *("depends", "[]" if not depends else list_text("depends", depends)),
    )
