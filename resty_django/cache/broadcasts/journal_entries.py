"""Journal entries of invalidations: a mark, the writer's token, the channel and the data."""

from __future__ import annotations

import os
import secrets
from typing import Final

from resty_django.events.wire import NOT_EVENT
from resty_django.processes.forks import after_fork

_ERRORS: Final = "surrogatepass"
"""Keys that are not valid UTF-8 contain lone surrogates."""


def head(token: str, channel: str) -> bytes:
    """Return the entry without its data."""
    token_bytes, channel_bytes = token.encode(), channel.encode("utf-8", _ERRORS)
    lengths = bytes((NOT_EVENT, len(token_bytes))) + len(channel_bytes).to_bytes(2, "little")
    return lengths + token_bytes + channel_bytes


def data_bytes(data: str) -> bytes:
    """Return the data as in an entry."""
    return data.encode("utf-8", _ERRORS)


def decode(entry: bytes) -> tuple[str, str, str]:
    """Return the token, the channel and the data."""
    at = 4 + entry[1]
    end = at + int.from_bytes(entry[2:4], "little")
    return entry[4:at].decode(), entry[at:end].decode("utf-8", _ERRORS), entry[end:].decode("utf-8", _ERRORS)


class _Sender:
    """Identifies this process's broadcasts among the broadcasts of all processes and machines."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        self.token = f"{os.getpid()}:{secrets.token_hex(8)}"


sender: Final = _Sender()
after_fork(sender.after_fork)
