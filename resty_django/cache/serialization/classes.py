"""Registered dataclasses and msgspec Structs, the only classes that stored objects may name."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ..errors import BadOption

C = TypeVar("C", bound=type)


class Known(NamedTuple):
    """A registered class. `fingerprint`: changes with the names and the types of its fields."""

    kind: type
    fingerprint: bytes
    decode: Callable[[bytes], Any]


_by_name: Final[dict[str, Known]] = {}
_unresolved: Final[list[Callable[..., Any]]] = []
"""Functions whose annotations name classes that were not yet defined."""
_pack: Final = msgspec.msgpack.Encoder().encode


def register_type(kind: C) -> C:
    """Let caches store objects of a dataclass or a msgspec `Struct`. Return the class, so that it can decorate it.

        @register_type
        @dataclass
        class Price:
            amount: Decimal
            currency: str

    Classes in the return annotation of a function with `@cached` are registered automatically. The types of the fields
    must be supported by msgspec. Reading does not call `__init__`. After a change of the fields, stored objects count
    as misses. Raise `BadOption`.
    """
    if not _is_storable(kind):
        raise BadOption(f"register_type() takes a dataclass or a msgspec Struct, not {kind!r}.")
    name = _name(kind)
    if "<" in name:
        raise BadOption(f"{name} is defined inside a function, so its name may not be unique. Move it to its module.")
    try:
        decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(kind).decode
        fields = {field: repr(hint) for field, hint in typing.get_type_hints(kind, include_extras=True).items()}
    except (TypeError, NameError) as error:
        raise BadOption(f"The fields of {name} cannot be stored: {error}. Use types that msgspec supports.") from error
    fingerprint = hashlib.blake2b(_pack(sorted(fields.items())), digest_size=8).digest()
    _by_name[name] = Known(kind, fingerprint, decode)
    return kind


def register_annotation(function: Callable[..., Any]) -> None:
    """Register the classes in the return annotation of a function."""
    if "return" not in getattr(function, "__annotations__", {}):
        return
    try:
        annotation = typing.get_type_hints(inspect.unwrap(function), include_extras=True)["return"]
    except (NameError, TypeError, AttributeError):  # a class that is defined later, or imported only for type checkers
        _unresolved.append(function)
        return
    for kind in _classes_in(annotation):
        with contextlib.suppress(BadOption):  # storing an object reports it
            register_type(kind)


def to_stored(value: object) -> list[Any] | None:
    """Return the content of an object; None if its class is not registered. Raise msgspec's errors and `TypeError`."""
    known = _find(_name(type(value)))
    if known is None or known.kind is not type(value):
        return None
    return [_name(known.kind), known.fingerprint, _pack(value)]


def from_stored(content: list[Any]) -> Any:
    """Return the object. Raise `ValueError` if its class is unknown or has other fields now."""
    name, fingerprint, body = content
    known = _find(name)
    if known is None or known.fingerprint != fingerprint:
        raise ValueError(f"the class {name!r} is not registered, or its fields have changed")
    return known.decode(body)


def fields_of(value: Any) -> tuple[str, ...]:
    """Return the names of the fields of an object."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(value))


def is_storable(value: object) -> bool:
    """Return whether the class of a value could be registered."""
    return _is_storable(type(value))


def _is_storable(kind: object) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))


def _find(name: str) -> Known | None:
    if name not in _by_name and _unresolved:
        functions = list(_unresolved)
        _unresolved.clear()
        for function in functions:
            register_annotation(function)
    return _by_name.get(name)


def _classes_in(annotation: Any) -> Iterator[type]:
    if _is_storable(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _classes_in(argument)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
