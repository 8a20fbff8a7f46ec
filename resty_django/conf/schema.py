"""Decode the dict of a settings section into a frozen dataclass, and describe its problems in sentences.

A section is a frozen dataclass whose field names are the setting keys in lower case. Field types understood:
`bool`, `int`, `float` (takes an int), `str` (takes a path), `tuple[str, ...]` (takes a list), `tuple[dict[str, Any],
...]` (takes a list; the contents of the dicts are checked elsewhere), a nested section, a `Mapping` of sections (made
with `named`), and `T | None` of any of these. `decode_named` reads a dict of sections under names that the site
chooses, as in `CACHES`. Pure: this module does not read Django's settings.
"""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from resty_django import extras
from resty_django.address import see
from resty_django.text.durations import parse_duration
from resty_django.text.suggestions import did_you_mean

SETTING: Final = "RESTY_DJANGO"

Kind = Literal["unknown", "type", "value", "missing"]
T = TypeVar("T")


class Fault(NamedTuple):
    """A field whose value conflicts with another one. `text`: the end of a sentence that begins with its key."""

    field: str
    text: str


@runtime_checkable
class Checked(Protocol):
    """A section that validates several of its values together."""

    def faults(self) -> typing.Iterable[Fault]: ...


class Name(str):
    """A path component chosen by the site, such as a dictionary name; it is left out of anchors."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a setting: modules that one extra installs."""

    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with the settings. `path` leads to the key, e.g. `("IDS", "UDP", "PORT")`."""

    kind: Kind
    path: tuple[str, ...]
    message: str

    @property
    def reference(self) -> str:
        """The end of the message: a reference to the key, or for an unknown key to the section around it."""
        return see_key(self.path[:-1] if self.kind == "unknown" else self.path)


def setting(
    default: Any, *, check: Callable[[Any], str | None] | None = None, needs: Mapping[str, Needs] | None = None
) -> Any:
    """Return a field of a section.

    `check` takes a value of the right type and returns None or the end of a sentence that begins with the key
    ("must be at least 1"). `needs`: requirements of some of its values.
    """
    of_values = needs or {}
    return dataclasses.field(
        default=default,
        metadata={"check": check, "needs": lambda value: of_values.get(value) if isinstance(value, str) else None},
    )


def duration(default: float | None, *, check: Callable[[Any], str | None] | None = None) -> Any:
    """Return a field for seconds, which a site may also write as a timedelta or a text such as "10m"."""
    return dataclasses.field(
        default=default, metadata={"check": check, "needs": lambda value: None, "convert": _converted_duration}
    )


def _converted_duration(value: object, path: tuple[str, ...]) -> tuple[object, list[Problem]]:
    if not isinstance(value, str | timedelta):
        return value, []
    try:
        return parse_duration(value), []
    except ValueError as error:
        return None, [Problem("value", path, f"{key_text(path)} is not valid. {str(error).rstrip('.')}.")]


def section(
    cls: type[Any],
    *,
    needs: Needs | None = None,
    convert: Callable[[object, tuple[str, ...]], tuple[object, list[Problem]]] | None = None,
) -> Any:
    """Return a field with a nested section and its defaults.

    `needs`: its requirements once a site sets it. `convert`: returns the dict for a short form of it.
    """
    return dataclasses.field(default_factory=cls, metadata={"needs": lambda value: needs, "convert": convert})


def named(cls: type[Any]) -> Any:
    """Return a field with a section for each name that the site chooses; its type is a `Mapping`."""
    return dataclasses.field(
        default_factory=dict,
        metadata={"needs": lambda value: None, "convert": lambda value, path: decode_named(cls, value, path, {})},
    )


def at_least(low: float) -> Callable[[Any], str | None]:
    return lambda value: None if value >= low else f"must be at least {low}, not {value}"


def between(low: int, high: int) -> Callable[[Any], str | None]:
    return lambda value: None if low <= value <= high else f"must be from {low} to {high}, not {value}"


def one_of(*values: str) -> Callable[[Any], str | None]:
    choices = " or ".join(f'"{value}"' for value in values)

    def check(value: Any) -> str | None:
        if value in values:
            return None
        suggestion = did_you_mean(value, values, quote='"')
        return f"must be {choices}, not {value!r}{'. ' if suggestion else ''}{suggestion}"

    return check


def above(low: float) -> Callable[[Any], str | None]:
    return lambda value: None if value > low else f"must be greater than {low}, not {value}"


def key_text(path: tuple[str, ...]) -> str:
    """Return the key as Python code: `RESTY_DJANGO["IDS"]["STEP"]`."""
    return SETTING + "".join(f'["{key}"]' for key in path)


def page_of(path: tuple[str, ...]) -> str:
    """Return the place in the repository where the key is documented: `docs/reference/settings.md#ids-step`."""
    keys = [key for key in path if not isinstance(key, Name)]
    return "docs/reference/settings.md#" + ("-".join(keys).lower() or "settings")


def see_key(path: tuple[str, ...]) -> str:
    """Return the end of a message, ` See <URL>.`, with the URL of the key's documentation; nothing without a site."""
    return see(page_of(path))


def nearest(key: str, candidates: typing.Iterable[str]) -> str:
    """Return a "Did you mean" sentence for `key`, else the list of known keys."""
    keys = sorted(candidates)
    return did_you_mean(key, keys, f"Known keys: {', '.join(keys)}.", quote='"')


def unknown_key(key: object, path: tuple[str, ...], candidates: typing.Iterable[str]) -> Problem:
    if not isinstance(key, str):
        return Problem("unknown", path, f"{key_text(path)} has the key {key!r}; keys must be upper-case strings.")
    return Problem("unknown", (*path, key), f"{key_text((*path, key))} is not a setting. {nearest(key, candidates)}")


def wrong_type(value: object, path: tuple[str, ...], expected: str) -> Problem:
    """Return the problem. The value is part of it only where a number was expected: a text may be a secret."""
    actual = "None" if value is None else type(value).__name__
    if expected in ("True or False", "a whole number", "a number") and isinstance(value, str | int | float):
        actual = f"{value!r:.60} ({actual})"
    return Problem("type", path, f"{key_text(path)} must be {expected}, not {actual}.")


@cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def field_types(cls: type[Any]) -> dict[str, Any]:
    """Return the types of a section's fields, cached."""
    return _hints(typing.cast("Hashable", cls))


def keys(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """Return a section's keys, in upper case, with their fields."""
    return {field.name.upper(): field for field in dataclasses.fields(cls)}


def paths(cls: type[Any], path: tuple[str, ...]) -> typing.Iterator[tuple[str, ...]]:
    """Yield the path of every key of the section and its nested sections."""
    for key, field in keys(cls).items():
        yield (*path, key)
        kind = field_types(cls)[field.name]
        if dataclasses.is_dataclass(kind):
            yield from paths(typing.cast("type[Any]", kind), (*path, key))


def missing_modules(cls: type[Any], raw: object, path: tuple[str, ...]) -> list[Problem]:
    """Return the settings that the site uses although their package is not installed."""
    if not isinstance(raw, Mapping):
        return []
    problems = []
    for key, field in keys(cls).items():
        needs = field.metadata["needs"](raw[key]) if key in raw else None
        if needs is None:
            continue
        try:
            extras.require(f"{key_text((*path, key))} needs", *needs.modules)
        except extras.MissingExtra as error:
            problems.append(Problem("missing", (*path, key), str(error)))
    return problems


def decode(cls: type[T], raw: object, path: tuple[str, ...]) -> tuple[T | None, list[Problem]]:
    """Build `cls` from `raw`; without problems the first item is the section, otherwise it is None."""
    if not isinstance(raw, Mapping):
        return None, [wrong_type(raw, path, "a dict")]
    fields_by_key = keys(cls)
    problems = [unknown_key(key, path, fields_by_key) for key in raw if key not in fields_by_key]
    values: dict[str, Any] = {}
    for key, field in fields_by_key.items():
        if key in raw:
            key_path = (*path, key)
            convert = field.metadata.get("convert")
            value, field_problems = (raw[key], []) if convert is None else convert(raw[key], key_path)
            if not field_problems:
                value, field_problems = _convert(field_types(cls)[field.name], value, key_path)
            if not field_problems:
                field_problems = _check(field, value, key_path)
            values[field.name] = value
            problems += field_problems
    if problems:
        return None, problems
    built = cls(**values)
    if isinstance(built, Checked):
        problems = [
            Problem("value", (*path, fault.field.upper()), f"{key_text((*path, fault.field.upper()))} {fault.text}.")
            for fault in built.faults()
        ]
    return (None if problems else built), problems


def decode_named(
    cls: type[T], raw: object, path: tuple[str, ...], always: Mapping[str, Mapping[str, object]]
) -> tuple[Mapping[str, T] | None, list[Problem]]:
    """Build a `cls` for each name in `raw` and in `always`; `always` provides values missing in `raw`."""
    if not isinstance(raw, Mapping):
        return None, [wrong_type(raw, path, "a dict")]
    values: dict[str, T] = {}
    problems: list[Problem] = []
    for name in (*always, *(name for name in raw if name not in always)):
        if not isinstance(name, str) or not name:
            text = f"{key_text(path)} has the key {name!r}; its keys must be names, strings of at least one character."
            problems.append(Problem("unknown", path, text))
            continue
        options = raw.get(name, {})
        if isinstance(options, Mapping):
            options = {**always.get(name, {}), **options}
        value, section_problems = decode(cls, options, (*path, Name(name)))
        problems += section_problems
        if value is not None:
            values[name] = value
    return (None if problems else values), problems


def _check(field: dataclasses.Field[Any], value: object, path: tuple[str, ...]) -> list[Problem]:
    check = field.metadata.get("check")
    fault = check(value) if check is not None and value is not None else None
    return [Problem("value", path, f"{key_text(path)} {fault}{'' if fault.endswith('?') else '.'}")] if fault else []


def _convert(kind: Any, value: object, path: tuple[str, ...]) -> tuple[Any, list[Problem]]:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        if value is None:
            return None, []
        (inner,) = (member for member in typing.get_args(kind) if member is not type(None))
        converted, problems = _convert(inner, value, path)
        return converted, [_or_none(problem) for problem in problems]
    if dataclasses.is_dataclass(kind):
        return decode(typing.cast("type[Any]", kind), value, path)
    if typing.get_origin(kind) is Mapping:  # `named` has converted it
        return value, []
    if typing.get_origin(kind) is tuple:
        return (_texts if typing.get_args(kind)[0] is str else _dicts)(value, path)
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if kind is float and type(value) is int:
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None, [Problem("value", path, f"{key_text(path)} must be a finite number, not {value}.")]
    if type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
        return value, []
    expected = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}[kind]
    return None, [wrong_type(value, path, expected)]


def _or_none(problem: Problem) -> Problem:
    if problem.kind != "type":
        return problem
    return dataclasses.replace(problem, message=problem.message.replace(", not ", " or None, not ", 1))


def _texts(value: object, path: tuple[str, ...]) -> tuple[tuple[str, ...], list[Problem]]:
    if not isinstance(value, list | tuple | set | frozenset):
        return (), [wrong_type(value, path, "a list of strings")]
    wrong = [item for item in value if not isinstance(item, str)]
    if wrong:
        return (), [_bad_item(wrong[0], path)]
    return tuple(value), []


def _dicts(value: object, path: tuple[str, ...]) -> tuple[tuple[dict[str, Any], ...], list[Problem]]:
    if not isinstance(value, list | tuple):
        return (), [wrong_type(value, path, "a list of dicts")]
    wrong = [item for item in value if not (isinstance(item, Mapping) and all(isinstance(key, str) for key in item))]
    if wrong:
        return (), [_bad_item(wrong[0], path, "dicts with string keys")]
    return tuple(dict(item) for item in value), []


def _bad_item(item: object, path: tuple[str, ...], expected: str = "strings") -> Problem:
    actual = "None" if item is None else type(item).__name__
    return Problem(
        "type", path, f"{key_text(path)} must be a list of {expected}; it contains an item of type {actual}."
    )
