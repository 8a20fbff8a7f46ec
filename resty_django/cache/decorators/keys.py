"""Keys from the arguments of calls. Pure.

A key consists of the function's name and the `repr` of its arguments: `shop.load_product(7, 'en')`. Values of different
types have different representations and strings are quoted, so different calls never have the same key.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from html import escape
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

LONGEST: Final = 200
"""Maximum length of a key in characters; longer keys are hashed."""

PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
all_plain: Final = PLAIN.issuperset
_WRITTEN: Final = frozenset({Decimal, UUID, date, timedelta})
_TIMES: Final = frozenset({datetime, time})

Values = Callable[..., tuple[Any, ...]]


class _Written:
    """A placeholder for a default value in the text of a signature."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def binder(function: Callable[..., Any]) -> tuple[Values, tuple[str, ...]]:
    """Return a function that maps a call's arguments to a value per parameter, and the parameters' names.

    It has the parameters and defaults of `function`, so that Python itself binds the arguments and reports wrong ones.
    `*args` become a tuple among the values, and `**kwargs` a dict.
    """
    defaults: dict[str, Any] = {}
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if default is not parameter.empty:
            name = f"_default{len(defaults)}"
            defaults[name] = default
            default = _Written(name)
        parameters.append(parameter.replace(default=default, annotation=parameter.empty))
    values = "".join(f"{parameter.name}, " for parameter in parameters)
    text = f"lambda {str(inspect.Signature(parameters))[1:-1]}: ({values})"
    bind = eval(text, defaults)  # noqa: S307 - of names that are parameters of a function already
    bind.__qualname__ = bind.__name__ = getattr(function, "__qualname__", repr(function))
    names = (f"**{param.name}" if param.kind is param.VAR_KEYWORD else param.name for param in parameters)
    return bind, tuple(names)


def text(values: tuple[Any, ...], names: Sequence[str], function: str) -> str:
    """Return the text of the values; for `PLAIN` types, this is their `repr`. `names`: the names of the arguments,
    `**kwargs` with its stars. Raise `TypeError` with the name of an argument of an unsupported type.
    """
    written = []
    for name, value in zip(names, values, strict=True):
        try:
            written.append(_keywords(value) if name.startswith("**") else _text(value))
        except _Unknown as error:
            raise TypeError(
                f"{function}() cannot be cached by its argument {name!r}: {error}. Use str, numbers, dates, "
                "UUIDs, enums, classes, None, or tuples and frozensets of these, or pass key= (for self: by=) "
                "to identify calls."
            ) from None
    return f"({', '.join(written)}{',' if len(written) == 1 else ''})"


def shortened(key: str) -> str:
    """Return the key; for a long key, its beginning and a hash of the whole key."""
    if len(key) <= LONGEST:
        return key
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
    return f"{key.partition('(')[0][:LONGEST]}#{digest}"


def path_of(kind: type) -> str:
    """Return the module and name of a class. Raise `TypeError` for a class defined inside a function."""
    if "<" in kind.__qualname__:
        raise TypeError(f"{kind.__qualname__} is defined inside a function, so another class may have the same name.")
    return f"{kind.__module__}.{kind.__qualname__}"


class _Unknown(Exception):
    """The value's type has no unambiguous text representation."""


def _keywords(arguments: dict[str, Any]) -> str:
    return f"{{{', '.join(f'{name!r}: {_text(value)}' for name, value in sorted(arguments.items()))}}}"


def _text(value: Any) -> str:
    kind = type(value)
    if kind is int:
        return _whole(value)
    if kind in PLAIN or kind in _WRITTEN:
        return repr(value)
    if kind in _TIMES:
        return _time(value)
    if kind is tuple:
        return f"({', '.join(map(_text, value))},)"
    if kind is frozenset:
        return f"frozenset({{{', '.join(sorted(map(_text, value)))}}})"
    try:
        if isinstance(value, Enum):
            return f"{path_of(kind)}({_text(value.value)})"
        if isinstance(value, type):
            return path_of(value)
    except TypeError as error:
        raise _Unknown(str(error).removesuffix(".")) from None
    if hasattr(kind, "casefold") and not isinstance(value, str):  # a lazy text
        return _text(str(value))
    if isinstance(value, str) and hasattr(kind, "__html__"):  # safe, such as a literal in a template
        plain = "".join(value)
        # Without special characters the plain text has the same result, so both share a key, also to invalidate it.
        return repr(plain) if escape(plain) == plain else f"safe({plain!r})"
    raise _Unknown(f"it is or contains a {kind.__qualname__}")


def _whole(value: int) -> str:
    try:
        return repr(value)
    except ValueError:  # Python limits the digits of decimal numbers
        return hex(value)


def _time(value: datetime | time) -> str:
    zone = value.tzinfo
    if zone is None or type(zone) is timezone or (type(zone) is ZoneInfo and zone.key):
        return repr(value)
    raise _Unknown(f"its time zone is a {type(zone).__qualname__}, not a ZoneInfo or a datetime.timezone")
