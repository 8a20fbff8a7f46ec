"""The options of a put, as the core takes them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from .errors import InvalidArgument


def class_name(klass: Any) -> str:
    """The name under which a job class is put: a text as it is, of a class or function its dotted path."""
    if isinstance(klass, str):
        return klass
    module, name = getattr(klass, "__module__", None), getattr(klass, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        raise InvalidArgument(
            f"{klass!r} cannot be the class of a job. "
            "Give its dotted path, or a class or function at the top of a module."
        )
    return f"{module}.{name}"


def text_list(name: str, values: Iterable[str]) -> list[str]:
    """A list of texts."""
    if isinstance(values, str):
        raise InvalidArgument(f"{name} must be a list of texts, not the text {values!r}. Write [{values!r}].")
    return [str(each) for each in values]


def list_text(name: str, values: Iterable[str]) -> str:
    """A list of texts as JSON; those that are not UTF-8 go out as they came in."""
    found = text_list(name, values)
    try:
        return msgspec.json.encode(found).decode()
    except UnicodeEncodeError:
        return json.dumps(found, ensure_ascii=False)


def options_of(
    priority: float | None, tags: Iterable[str] | None, retries: float | None, depends: Iterable[str] | None
) -> tuple[Any, ...]:
    """All four as every client sends them, with what holds where nothing is given: 0, none, 5, none."""
    return (
        *("priority", 0 if priority is None else priority),
        *("tags", "[]" if not tags else list_text("tags", tags)),
        *("retries", 5 if retries is None else retries),
        *("depends", "[]" if not depends else list_text("depends", depends)),
    )


__all__ = ["class_name", "list_text", "options_of", "text_list"]
