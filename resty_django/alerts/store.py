"""The state of the alerts in a shared dictionary, which all processes that evaluate the rules change atomically."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from resty_django.conf import conf
from resty_django.shdict import Change, Keep, SharedDict, shdicts

from .incidents import State

KEY: Final = "resty:alerts:1"
"""The key of the state; the number is the version of its format."""

R = TypeVar("R")


def dictionary() -> SharedDict:
    return shdicts[conf.alerts.store]


def load() -> State:
    """Return the stored state. Raise `SharedDictError`."""
    return _decoded(dictionary().get(KEY))


def change(function: Callable[[State], tuple[State, R]]) -> R:
    """Replace the state by what `function` returns, and return its second result. Raise `SharedDictError`.

    It may be called several times.
    """

    def update(stored: Any) -> Change | Keep:
        before = _decoded(stored)
        after, result = function(before)
        return Keep(result) if after is before else Change(msgspec.json.encode(after), 0, result)

    return dictionary().update(KEY, update)  # type: ignore[no-any-return]


def _decoded(stored: Any) -> State:
    if not isinstance(stored, bytes):
        return State()
    try:
        return msgspec.json.decode(stored, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return State()
