"""Erasing what is stored about one person: apps register what they can erase, `manage.py resty_forget` calls them.

    erasing.register("limits", "resty_django.limits.erasing")

The module has an eraser, `erase`, and `KEPT`, what it cannot erase, as sentences. It is imported when somebody erases.
An eraser takes a key (an IP address, a user's key), whether to change nothing, and the names of further dictionaries,
and yields what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Erased:
    """`what`: a kind of data, such as "states of limits"; `count`: how many entries had the key."""

    what: str
    count: int


Eraser = Callable[[str, bool, Sequence[str]], Iterable[Erased]]
"""(key, dry, further dictionaries to look into) to what was erased, or would be. May raise the errors of stores."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the package with data about people. `kept`: what it cannot erase, as sentences."""

    name: str
    erase: Eraser
    kept: Sequence[str] = ()


registry: dict[str, Part | str] = {}


def register(name: str, module: str) -> None:
    """Add the part whose eraser is in the module of that dotted path; a part of the same name is replaced."""
    registry[name] = module


def parts() -> Iterator[Part]:
    """Yield the registered parts, in the order of registration."""
    for name, registered in list(registry.items()):
        if isinstance(registered, Part):
            yield registered
        else:
            module = import_module(registered)
            yield Part(name, module.erase, module.KEPT)
