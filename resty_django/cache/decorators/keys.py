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
        self._values: Callable[..., tuple[object, ...]]
        """Returns the values that identify a call."""
        self._names: tuple[str, ...]
        """The argument that each of these values comes from; with `by`, `self` has two: class and identity."""
        if key is not None:
            self._values, self._names = (lambda *args, **kwargs: (key(*args, **kwargs),)), ("key",)
        else:
            self._values, self._names = binder(function)
        if by is not None:
            if not self._names:
                raise BadOption(f"by is for methods, but {self._function_name}() has no self. Remove by.")
            bind = self._values

            def values_by(*args: object, **kwargs: object) -> tuple[object, ...]:
                instance, *others = bind(*args, **kwargs)
                return (class_path(type(instance)), self._identity(by, instance), *others)

            self._values, self._names = values_by, ("self", "self", *self._names[1:])

    def of(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Return the key of a call. Raise `TypeError` for wrong arguments and for arguments of unsupported types."""
        values = self._values(*args, **kwargs)
        try:
            # one `repr` for all values: a hit takes half as long
            key = f"{self.name}{values!r}" if PLAIN_TYPES.issuperset(map(type, values)) else self._text(values)
        except ValueError:  # Python limits the digits of decimal numbers
            key = self._text(values)
        return key if len(key) <= MAX_KEY_LENGTH else shortened(key)

    def _text(self, values: Sequence[object]) -> str:
        return self.name + values_text(values, self._names, self._function_name)

    def _identity(self, by: str | Callable[..., object], instance: object) -> object:
        """Return what `by` returns for `self`, None for `type`."""
        if by is type:
            return None
        identity = getattr(instance, by) if isinstance(by, str) else by(instance)
        if identity is None:
            raise ValueError(
                f"{self._function_name}() cannot be cached: by={by!r} is None for {instance!r}, and all objects with "
                "None would share one result. Save the object first."
            )
        return identity


def binder(function: Callable[..., object]) -> tuple[Callable[..., tuple[object, ...]], tuple[str, ...]]:
    """Return a function that maps a call's arguments to one value per parameter, and the names of the parameters.

    Defaults are included. `*args` become a tuple among the values, `**kwargs` a dict, whose name has its stars.
    """
    # A lambda with the same parameters, so that Python binds the arguments and reports wrong ones. With
    # `Signature.bind`, a hit would take three times as long.
    parameters = inspect.signature(function).parameters.values()
    optional = [parameter for parameter in parameters if parameter.default is not parameter.empty]
    bare = [
        parameter.replace(annotation=parameter.empty, default=None if parameter in optional else parameter.empty)
        for parameter in parameters
    ]
    values = "".join(f"{parameter.name}, " for parameter in parameters)
    bind = eval(f"lambda {str(inspect.Signature(bare))[1:-1]}: ({values})")  # noqa: S307 - only names of parameters
    bind.__defaults__ = tuple(item.default for item in optional if item.kind is not item.KEYWORD_ONLY)
    bind.__kwdefaults__ = {item.name: item.default for item in optional if item.kind is item.KEYWORD_ONLY}
    bind.__name__ = bind.__qualname__ = getattr(function, "__qualname__", repr(function))
    return bind, tuple(f"**{item.name}" if item.kind is item.VAR_KEYWORD else item.name for item in parameters)


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
