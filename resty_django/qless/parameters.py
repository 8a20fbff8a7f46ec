"""What the function of a task may be called with."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from .errors import InvalidArgument
from .message import Source
from .texts import encode

_ANY = 1 << 30


class Parameters:
    """Of `function`, which is the task `path`; with `bind` without its first one."""

    def __init__(self, function: Callable[..., Any], path: str, bind: bool) -> None:
        self._path = path
        self._signature = inspect.signature(function)
        found = [*self._signature.parameters.values()][1 if bind else 0 :]
        self._signature = self._signature.replace(parameters=found)
        self.names = [each.name for each in found]
        plain = [each for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        self._least = sum(each.default is each.empty for each in plain)
        self._most = _ANY if any(each.kind is each.VAR_POSITIONAL for each in found) else len(plain)
        if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in found):
            self._least = _ANY  # their number alone says nothing

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any], source: Source = None) -> None:
        """Raises `TypeError` where the function cannot be called so; with `source` one argument will come before."""
        if not kwargs and self._least <= len(args) + (source is not None) <= self._most:
            return
        try:
            self._bound(args, kwargs, source)
        except TypeError as error:
            raise TypeError(f"{self._path}{self._signature} cannot be called so: {error}.") from None

    def digest(
        self, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], source: Source = None
    ) -> str:
        """32 hexadecimal digits, the same for the same values of these parameters, however they were given."""
        bound = self._bound(args, kwargs, source)
        bound.apply_defaults()
        wanted = [self._path, [[name, bound.arguments[name]] for name in names]]
        try:
            text = msgspec.json.encode(msgspec.json.decode(encode(wanted)), order="deterministic")
        except TypeError as error:
            raise InvalidArgument(str(error)) from None
        return hashlib.sha256(text).hexdigest()[:32]

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any], source: Source) -> inspect.BoundArguments:
        return self._signature.bind(*(() if source is None else (source,)), *args, **kwargs)


__all__ = ["Parameters"]
