"""Cache keys of function calls.

A key consists of the function's name and the `repr` of its arguments: `shop.load_product(7, 'en')`. Values of different
types have different representations and strings are quoted, so different calls never have the same key. A key that
would be too long has a hash in place of the arguments: `shop.load_product#` and 40 hexadecimal digits.
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
"""Characters of a key with arguments, and of the function's name in a key with a hash."""
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
        self._by = by
        self._key = key
        self._names: tuple[str, ...] = ("key",)
        """The argument that each of the values of a call comes from; with `by`, `self` has two: class and identity."""
        if key is None:
            self._arguments = Arguments(function)
            names = self._arguments.names
            self._names = names if by is None else ("self", "self", *names[1:])
            if by is not None and not names:
                raise BadOption(f"by is for methods, but {self._function_name}() has no self. Remove by.")

    def of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the key of a call. Raise `TypeError` for wrong arguments and for arguments of unsupported types."""
        if self._key is not None:
            values: tuple[object, ...] = (self._key(*args, **kwargs),)
        else:
            values = self._arguments.values(args, kwargs)
            if self._by is not None:
                values = (*self._identity(self._by, values[0]), *values[1:])
        if PLAIN_TYPES.issuperset(map(type, values)):  # one `repr` for all values: a hit takes half as long
            key = f"{self.name}{values!r}"
        else:
            key = self.name + values_text(values, self._names, self._function_name)
        return key if len(key) <= MAX_KEY_LENGTH else shortened(key)

    def _identity(self, by: str | Callable[..., object], instance: object) -> tuple[object, object]:
        """Return the values that identify `self`: its class, and what `by` returns."""
        if by is type:
            return class_path(type(instance)), None
        identity = getattr(instance, by) if isinstance(by, str) else by(instance)
        if identity is None:
            raise ValueError(
                f"{self._function_name}() cannot be cached: by={by!r} is None for {instance!r}, and all objects with "
                "None would share one result. Save the object first."
            )
        return class_path(type(instance)), identity


class Arguments:
    """The parameters of a function. `names`: in order, `**kwargs` with its stars."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function_name = getattr(function, "__qualname__", repr(function))
        self._signature = inspect.signature(function)
        parameters = list(self._signature.parameters.values())
        self.names = tuple(f"**{item.name}" if item.kind is item.VAR_KEYWORD else item.name for item in parameters)
        self._remaining: dict[int, RemainingParameters] = {}
        """The parameters left after 0, 1, 2... positional arguments. Empty if the function has `*args`, `**kwargs` or
        positional-only parameters."""
        kinds = [parameter.kind for parameter in parameters]
        if {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}.issuperset(kinds):
            for count in range(kinds.count(Parameter.POSITIONAL_OR_KEYWORD) + 1):
                self._remaining[count] = RemainingParameters(parameters[count:])

    def values(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[object, ...]:
        """Return one value per parameter, defaults included: `*args` as a tuple, `**kwargs` as a dict.

        Raise `TypeError` if the function cannot be called with these arguments.
        """
        # The usual calls do not need `Signature.bind`, which would take longer than the rest of a hit.
        remaining = self._remaining.get(len(args))
        if remaining is not None:
            if not kwargs and not remaining.required:
                return args + remaining.defaults
            if not remaining.required or remaining.required <= kwargs.keys():
                values = {**remaining.by_name, **kwargs}  # in the order of the signature, then unknown keywords
                if len(values) == len(remaining.by_name):  # no keyword is unknown
                    return args + tuple(values.values())
        # Other parameters, or wrong arguments, for which `bind` has the message.
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._function_name}() cannot be called like this: {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())


class RemainingParameters:
    """The parameters that a call does not pass by position.

    `by_name`: their defaults in the order of the signature, `Parameter.empty` for `required` ones. `defaults`: the same
    without the names.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.by_name = {parameter.name: parameter.default for parameter in parameters}
        self.defaults = tuple(self.by_name.values())
        self.required = frozenset(name for name, default in self.by_name.items() if default is Parameter.empty)


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
    """Return the name of the function and a hash of the whole key."""
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
    if not isinstance(value, str) and hasattr(kind, "casefold"):
        # A lazy text of Django, which this module does not import, has the methods of str, but is not a str.
        return _text(str(value))
    if isinstance(value, str) and hasattr(kind, "__html__"):  # safe
        plain = "".join(value)
        # Without special characters it means the same as a plain text, so both have one key. A template's literal is
        # safe: `invalidate("tea")` must delete a result that a template has cached.
        return repr(plain) if escape(plain) == plain else f"safe({plain!r})"
    raise _Unsupported(f"it is or contains a {kind.__qualname__}")
