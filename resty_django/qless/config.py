"""The options of the job queue, which hold for all clients: `client.config`. docs/qless/core.md has their table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from .call import Steps, twins
from .texts import read, reader, text

if TYPE_CHECKING:
    from .clients import Client

TEXTS: Final = frozenset(("application", "fixes"))
"""Options that are never numbers."""

_OPTIONS: Final = reader(dict[str, Any])
_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,17})")
_FRACTION: Final = re.compile(r"-?(0|[1-9]\d*)\.\d+")


class Config:
    """The server keeps texts; what looks like a number is told as one, as its default is."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def _get(self, option: str, default: Any = None) -> Steps[Any]:
        """The value of an option; else the default that the core has; else `default`."""
        reply = yield "config.get", option
        return default if reply is None else _value(option, reply)

    get, aget = twins(_get)

    def _set(self, option: str, value: str | float) -> Steps[None]:
        """Set an option for all clients, at once."""
        yield "config.set", option, _number_text(value)

    set, aset = twins(_set)

    def _all(self) -> Steps[dict[str, Any]]:
        """All options that are set or have a default in the core."""
        found = read((yield ("config.get",)), _OPTIONS)
        return {option: _value(option, value) for option, value in found.items()}

    all, aall = twins(_all)

    def _unset(self, option: str) -> Steps[None]:
        """Back to the default."""
        yield "config.unset", option

    unset, aunset = twins(_unset)
    clear, aclear = unset, aunset


def _number_text(value: str | float) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _value(option: str, value: Any) -> Any:
    if isinstance(value, bytes):
        value = text(value)
    if not isinstance(value, str) or option in TEXTS:
        return value
    if _INTEGER.fullmatch(value):
        return int(value)
    return float(value) if _FRACTION.fullmatch(value) else value


__all__ = ["Config"]
