"""The settings sections: their keys, their dataclasses and the apps that they configure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from django.utils.functional import cached_property
from django.utils.module_loading import import_string

from .schema import Name, Problem, decode, decode_named, missing_modules, paths

if TYPE_CHECKING:
    from . import Conf

T = TypeVar("T")


class Section(Generic[T]):
    """One section: an attribute of `Conf` that is read from Django's settings on first use.

    `cls` is the path of its dataclass in `sections`, which is imported on first use: a site that leaves a section out
    does not pay for it.
    """

    def __init__(self, key: str, cls: str, app: str) -> None:
        self.key = key
        self.app = app
        self._path = cls

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Section[T]: ...
    @overload
    def __get__(self, instance: Conf, owner: type[Any]) -> T: ...
    def __get__(self, instance: Conf | None, owner: type[Any]) -> Section[T] | T:
        if instance is None:
            return self
        try:
            values: T = instance.cache[self.key]
            return values
        except KeyError:
            return instance.load(self)

    @cached_property
    def cls(self) -> type[Any]:
        """Return the dataclass of the section or of its named sections."""
        cls: type[Any] = import_string(f"{__package__}.sections.{self._path}")
        return cls

    def decode(self, raw: object) -> tuple[T | None, list[Problem]]:
        """Return the section and no problems, or None and the problems."""
        return decode(self.cls, raw, (self.key,))

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield the path of every key of this section."""
        return paths(self.cls, (self.key,))

    def missing(self, raw: object) -> list[Problem]:
        """Return its settings whose package is not installed."""
        return missing_modules(self.cls, raw, (self.key,))


class NamedSections(Section[Mapping[str, T]]):
    """A dict of sections under names that the site chooses, as in `CACHES`.

    `always` contains the built-in names, with the values that differ from the dataclass's defaults.
    """

    def __init__(self, key: str, cls: str, app: str, always: Mapping[str, Mapping[str, object]]) -> None:
        super().__init__(key, cls, app)
        self.always = always

    def decode(self, raw: object) -> tuple[Mapping[str, T] | None, list[Problem]]:
        return decode_named(self.cls, raw, (self.key,), self.always)

    def paths(self) -> Iterator[tuple[str, ...]]:
        return paths(self.cls, (self.key, Name("name")))

    def missing(self, raw: object) -> list[Problem]:
        if not isinstance(raw, Mapping):
            return []
        return [
            problem
            for name, options in raw.items()
            for problem in missing_modules(self.cls, options, (self.key, Name(name)))
        ]
