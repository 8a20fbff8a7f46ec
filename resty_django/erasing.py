"""Registry of erasers for data about a person. Apps register theirs; `manage.py resty_forget` calls them.

    erasing.register("limits", "resty_django.limits.erasing")

The module defines the eraser, `erase`, and `KEPT`, sentences about data that it cannot erase. It is imported on first
use. An eraser takes a key (an IP address, a user's key), a dry-run flag and the names of further dictionaries, and
yields what it erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Erased:
    """Erased entries: `what` is the kind of data, such as "states of limits"; `count` is the number of entries."""

    what: str
    count: int


Eraser = Callable[[str, bool, Sequence[str]], Iterable[Erased]]
"""Takes the key, a dry-run flag and further dictionaries to search. May raise errors of the stores."""


@dataclass(frozen=True, slots=True)
class Part:
    """A component that stores data about people. `kept`: sentences about data that it cannot erase."""

    name: str
    erase: Eraser
    kept: Sequence[str] = ()


registry: dict[str, Part | str] = {}


def register(name: str, module: str) -> None:
    """Register the eraser in the module at a dotted path. It replaces one of the same name."""
    registry[name] = module


def parts() -> Iterator[Part]:
    """Yield the registered components, in the order of registration."""
    for name, registered in list(registry.items()):
        if isinstance(registered, Part):
            yield registered
        else:
            module = import_module(registered)
            yield Part(name, module.erase, module.KEPT)
