"""Validation of tags. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from ..errors import BadOption

MAX_TAG_LENGTH: Final = 200
"""Maximum length of a tag in characters."""
MAX_TAGS: Final = 64
"""Maximum number of tags of a value."""

EXPECTED: Final = (
    f"a tuple or list of at most {MAX_TAGS} tags, each a str of 1 to {MAX_TAG_LENGTH} characters, "
    'such as ("product:7",)'
)

Tags = Collection[str] | Callable[..., Collection[str]]
"""The tags of a value, or a function that returns them."""


def fault(tags: object) -> str:
    """Return what the option `tags` must be, or "" if it is valid."""
    return "" if callable(tags) or _is_valid(tags) else f"{EXPECTED}, or a function that returns them"


def resolved(tags: Tags, args: Sequence[Any]) -> tuple[str, ...]:
    """Return the tags of a value. `args`: the arguments for a function in place of tags. Raise `BadOption`."""
    names: Any = tags(*args) if callable(tags) else tags
    if inspect.iscoroutine(names):
        names.close()
        raise BadOption(f"The function passed as tags must not be a coroutine function: {tags!r}.")
    if not _is_valid(names):
        origin = "The function passed as tags must return" if callable(tags) else "tags must be"
        raise BadOption(f"{origin} {EXPECTED}, not {names!r}.")
    return tuple(dict.fromkeys(map(str, names)))


def invalidated(tags: tuple[object, ...]) -> tuple[str, ...]:
    """Return the arguments of `invalidate_tags` without repetitions. Raise `BadOption`."""
    for tag in tags:
        if not _is_tag(tag):
            raise BadOption(
                f"invalidate_tags() was passed {tag!r}. Pass each tag as a str of 1 to {MAX_TAG_LENGTH} characters: "
                'invalidate_tags("product:7", "shop:3").'
            )
    return tuple(dict.fromkeys(map(str, tags)))


def _is_valid(tags: object) -> bool:
    return isinstance(tags, tuple | list | set | frozenset) and len(tags) <= MAX_TAGS and all(map(_is_tag, tags))


def _is_tag(tag: object) -> bool:
    if not isinstance(tag, str) or not 0 < len(tag) <= MAX_TAG_LENGTH:
        return False
    try:
        tag.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
