"""Conversion of the values of a cache: `typed` before they are stored, `unpack` when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from django.db.models import Model, QuerySet
from django.utils.functional import LazyObject
from msgspec.msgpack import Ext

from ..errors import BadValue
from ..storage.records import SCALARS, base_value
from . import classes, rows
from .scalars import DECODERS, ENCODERS, Unsupported

TUPLE: Final = 7
SET: Final = 8
FROZENSET: Final = 9
OBJECT: Final = 10
ROW: Final = 11

_COLLECTIONS: Final[dict[type, int]] = {tuple: TUPLE, set: SET, frozenset: FROZENSET}
_pack: Final = msgspec.msgpack.Encoder().encode


def typed(value: object) -> tuple[Any, Any]:
    """Return a value as all levels return it, and the form that msgpack supports.

    Tuples and querysets become lists, subclasses of str and numbers their base type; objects stay as they are. Raise
    `BadValue`, with the path of the unsupported value.
    """
    try:
        return _Conversion().typed(value, "")
    except RecursionError:
        raise BadValue(
            f"A {type(value).__name__} that contains itself or is too deep cannot be cached. Flatten it."
        ) from None


class _Conversion:
    def typed(self, value: Any, path: str) -> tuple[Any, Any]:
        kind = type(value)
        if kind in SCALARS:
            return value, value
        if isinstance(value, dict):
            pairs = {self._key(key, path): self.typed(item, f"{path}[{key!r}]") for key, item in value.items()}
            return {key: item for key, (item, _) in pairs.items()}, {key: stored for key, (_, stored) in pairs.items()}
        if isinstance(value, list | tuple | QuerySet):
            items = [self.typed(item, f"{path}[{position}]") for position, item in enumerate(value)]
            return [item for item, _ in items], [stored for _, stored in items]
        if issubclass(kind, LazyObject):  # such as `request.user`
            return self.typed(value.__reduce__()[1][0], path)
        converted = base_value(value)
        return (value, self._object(value, path)) if converted is None else (converted, converted)

    def in_row(self, value: Any, path: str) -> Any:
        """Return the stored form of the value of a model's field, whose type is kept."""
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind in _COLLECTIONS:
            return Ext(_COLLECTIONS[kind], _pack([self.in_row(item, f"{path}[…]") for item in value]))
        if isinstance(value, dict):
            return {self._key(key, path): self.in_row(item, f"{path}[{key!r}]") for key, item in value.items()}
        if isinstance(value, list):
            return [self.in_row(item, f"{path}[{position}]") for position, item in enumerate(value)]
        if issubclass(kind, LazyObject):
            return self.in_row(value.__reduce__()[1][0], path)
        converted = base_value(value)
        return self._object(value, path) if converted is None else converted

    def _object(self, value: object, path: str) -> Ext:
        kind = type(value)
        try:
            if kind in ENCODERS:
                code, encode = ENCODERS[kind]
                return Ext(code, _pack(encode(value)))
            if isinstance(value, Model):
                return Ext(ROW, _pack(rows.to_stored(value, lambda item, name: self.in_row(item, path + name))))
            if classes.is_storable(value):
                content = classes.to_stored(value)
                if content is None:
                    raise Unsupported(
                        "is of a class that is not registered; decorate it with @register_type, or name it in the "
                        "return annotation of the cached function"
                    )
                return Ext(OBJECT, _pack(content))
        except Unsupported as error:
            raise BadValue(f"{_subject(value, path)} {error}.") from None
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            if isinstance(error, BadValue):
                raise
            value, path = _part(value, path)
            raise BadValue(f"{_subject(value, path)} cannot be cached: {error}. Change this value.") from error
        raise _unsupported(value, path)

    def _key(self, key: object, path: str) -> Any:
        if type(key) in SCALARS:
            return key
        converted = base_value(key)
        if converted is None:
            raise _unsupported(key, path, "key")
        return converted


def _subject(value: object, path: str, noun: str = "value") -> str:
    place = f" at {path.lstrip('.')}" if path else ""
    return f"A {noun} of type {type(value).__name__}{place}"


def _unsupported(value: object, path: str, noun: str = "value") -> BadValue:
    return BadValue(
        f"{_subject(value, path, noun)} cannot be cached. Use None, str, numbers, bool, bytes, dates, times, Decimal, "
        "UUID, model instances, registered dataclasses and Structs, or lists and dicts of these, or set a serializer "
        "for the cache."
    )


def _part(value: object, path: str) -> tuple[Any, str]:
    """Return the first field that msgspec cannot encode, with its path; the value itself if there is none."""
    if classes.is_storable(value):
        for name in classes.fields_of(value):
            part = getattr(value, name)
            try:
                _pack(part)
            except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
                return _part(part, f"{path}.{name}")
    return value, path


def _from_ext(code: int, data: memoryview) -> Any:
    try:
        content = unpack(data)
        return _DECODERS[code](content)
    except (ArithmeticError, AttributeError, LookupError) as error:  # bytes of another program
        raise ValueError(f"the extension {code} cannot be read: {error!r}") from error


_DECODERS: Final[dict[int, Callable[[Any], object]]] = {
    **DECODERS,
    TUPLE: tuple,
    SET: set,
    FROZENSET: frozenset,
    OBJECT: classes.from_stored,
    ROW: rows.from_stored,
}

unpack: Final[Callable[[Any], object]] = msgspec.msgpack.Decoder(ext_hook=_from_ext).decode
"""Decode what `typed` returned and msgpack encoded. Raise errors in `records.UNREADABLE`."""
