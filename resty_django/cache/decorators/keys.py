"""Cache keys of function calls. Pure.

A key consists of the function's name and the `repr` of its arguments: `shop.load_product(7, 'en')`. Values of different
types have different representations and strings are quoted, so different calls never have the same key.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from html import escape
from inspect import Parameter
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo

from ..errors import BadOption

MAX_KEY_LENGTH: Final = 200
"""Maximum length of a key in characters; the end of a longer key is replaced by a hash."""
PLAIN_TYPES: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose `repr` is used unchanged."""


class CallKeys:
    """The keys of one function's calls. `name`: their prefix. `by`, `key`: see `cached`. Raise `BadOption`."""

    def __init__(
        self,
        function: Callable[..., object],
        name: str,
        by: str | Callable[..., object] | None = None,
        key: Callable[..., object] | None = None,
    ) -> None:
        self.name = name
        self._function_name = getattr(function, "__qualname__", repr(function))
        self._values: Callable[[tuple[object, ...], Mapping[str, object]], tuple[object, ...]]
        self._names: tuple[str, ...] = ("key",)
        if key is not None:
            self._values = lambda args, kwargs: (key(*args, **kwargs),)
            return
        arguments = Arguments(function)
        self._values, self._names = arguments.values, arguments.names
        if by is not None:
            if not self._names:
                raise BadOption(f"by is for methods, but {self._function_name}() has no self. Remove by.")
            self._values = lambda args, kwargs: self._method_values(by, *arguments.values(args, kwargs))
            self._names = ("self", "self", *self._names[1:])

    def of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the key of a call. Raise `TypeError` for wrong arguments and for arguments of unsupported types."""
        values = self._values(args, kwargs)
        if PLAIN_TYPES.issuperset(map(type, values)):  # gains half of a hit
            key = f"{self.name}{values!r}"
        else:
            key = self.name + values_text(values, self._names, self._function_name)
        return key if len(key) <= MAX_KEY_LENGTH else shortened(key)

    def _method_values(self, by: str | Callable[..., object], instance: object, *values: object) -> tuple[object, ...]:
        """Return the values that identify a call of a method: the class and the identity of `self`, and the others."""
        if by is type:
            return (class_path(type(instance)), None, *values)
        identity = getattr(instance, by) if isinstance(by, str) else by(instance)
        if identity is None:
            raise ValueError(
                f"{self._function_name}() cannot be cached: by={by!r} is None for {instance!r}, and all objects with "
                "None would share one result. Save the object first."
            )
        return (class_path(type(instance)), identity, *values)


class Arguments:
    """The parameters of a function. `names`: in order, `**kwargs` with its stars."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function_name = getattr(function, "__qualname__", repr(function))
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        self.names = tuple(f"**{item.name}" if item.kind is item.VAR_KEYWORD else item.name for item in parameters)
        self._defaults = tuple(item.default for item in parameters)
        self._required = frozenset(item.name for item in parameters if item.default is item.empty)
        kinds = [item.kind for item in parameters]
        by_keyword = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}.issuperset(kinds)
        self._max_positional = kinds.count(Parameter.POSITIONAL_OR_KEYWORD) if by_keyword else -1
        counts = [count for count in range(self._max_positional + 1) if self._required.isdisjoint(self.names[count:])]
        self._defaults_after = {count: self._defaults[count:] for count in counts}

    def values(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[object, ...]:
        """Return one value per parameter, defaults included: `*args` as a tuple, `**kwargs` as a dict.

        Raise `TypeError` if the function cannot be called with these arguments.
        """
        # `Signature.bind` takes longer than the rest of a hit, so frequent kinds of calls do without it.
        if not kwargs and len(args) in self._defaults_after:
            return args + self._defaults_after[len(args)]
        if len(args) <= self._max_positional:
            names, defaults = self.names[len(args) :], self._defaults[len(args) :]
            if self._required.intersection(names) <= kwargs.keys() <= set(names):
                return (*args, *map(kwargs.get, names, defaults))
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._function_name}() cannot be called like this: {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())


def values_text(values: Sequence[object], names: Sequence[str], function: str) -> str:
    """Return the text of the values; for `PLAIN_TYPES`, this is their `repr`. `names`: the names of the arguments,
    `**kwargs` with its stars. Raise `TypeError` with the name of an argument of an unsupported type.
    """
    texts = []
    for name, value in zip(names, values, strict=True):
        try:
            if name.startswith("**") and isinstance(value, dict):
                items = ", ".join(f"{keyword!r}: {_text(item)}" for keyword, item in sorted(value.items()))
                texts.append(f"{{{items}}}")
            else:
                texts.append(_text(value))
        except _Unsupported as error:
            raise TypeError(
                f"{function}() cannot be cached by its argument {name!r}: {error}. Use str, numbers, dates, "
                "UUIDs, enums, classes, None, or tuples and frozensets of these, or pass key= (for self: by=) "
                "to identify calls."
            ) from None
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def shortened(key: str) -> str:
    """Return the beginning of a long key and a hash of the whole key."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
    return f"{key.partition('(')[0][:MAX_KEY_LENGTH]}#{digest}"


def class_path(kind: type) -> str:
    """Return the module and name of a class. Raise `TypeError` for a class defined inside a function."""
    if "<" in kind.__qualname__:
        raise TypeError(f"{kind.__qualname__} is defined inside a function, so another class may have the same name.")
    return f"{kind.__module__}.{kind.__qualname__}"


class _Unsupported(Exception):
    """The value's type has no unambiguous text representation."""


def _text(value: object) -> str:
    kind = type(value)
    if kind is int:
        try:
            return repr(value)
        except ValueError:  # Python limits the digits of decimal numbers
            return f"{value:#x}"
    if kind in PLAIN_TYPES or kind in (Decimal, UUID, date, timedelta):
        return repr(value)
    if isinstance(value, datetime | time) and kind in (datetime, time):
        zone = value.tzinfo
        if zone is None or type(zone) is timezone or (type(zone) is ZoneInfo and zone.key):
            return repr(value)
        raise _Unsupported(f"its time zone is a {type(zone).__qualname__}, not a ZoneInfo or a datetime.timezone")
    if isinstance(value, tuple) and kind is tuple:
        return f"({', '.join(map(_text, value))},)"
    if isinstance(value, frozenset) and kind is frozenset:
        return f"frozenset({{{', '.join(sorted(map(_text, value)))}}})"
    try:
        if isinstance(value, Enum):
            return f"{class_path(kind)}({_text(value.value)})"
        if isinstance(value, type):
            return class_path(value)
    except TypeError as error:
        raise _Unsupported(str(error).removesuffix(".")) from None
    if hasattr(kind, "casefold") and not isinstance(value, str):  # a lazy text
        return _text(str(value))
    if isinstance(value, str) and hasattr(kind, "__html__"):  # safe, such as a literal in a template
        plain = "".join(value)
        # Without special characters the plain text has the same result, so both share a key, also to invalidate it.
        return repr(plain) if escape(plain) == plain else f"safe({plain!r})"
    raise _Unsupported(f"it is or contains a {kind.__qualname__}")
