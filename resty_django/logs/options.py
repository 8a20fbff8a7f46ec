"""Options of the handler. Pure."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any


class BadOption(ValueError):
    """An option is unknown, of the wrong type, out of range, or conflicts with another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of `SocketHandler`; names and units follow lua-resty-logger-socket.

    `host` and `port` are the server's address, or `path` its Unix stream socket; if all are set, `path` is ignored.
    `sock_type` is "tcp" or "udp". `flush_limit`: buffer size in bytes that triggers a flush. `drop_limit`: maximum
    buffer size in bytes.
    `timeout`: milliseconds for connecting, and for each step of sending. `max_retry_times`: retries for connecting and
    for sending. `retry_interval`: milliseconds before each retry. `periodic_flush`: seconds between periodic flushes
    (None or 0: none). `ssl`: use TLS. `ssl_verify`: verify the certificate for the name `sni_host` (None: `host`)
    against the certificates in the file `ca_file` (None: the system's).

    `resend`: sent messages are kept, and sent again if the connection breaks, until the connection is seen alive this
    number of milliseconds later (0: never). `terminator`: the end of each message.

    Raises `BadOption`.
    """

    host: str | None = None
    port: int | None = None
    path: str | None = None
    sock_type: str = "tcp"
    flush_limit: int = 4096
    drop_limit: int = 1_048_576
    timeout: float = 1000
    max_retry_times: int = 3
    retry_interval: float = 100
    periodic_flush: float | None = None
    ssl: bool = False
    ssl_verify: bool = True
    sni_host: str | None = None
    ca_file: str | None = None
    resend: float = 1000
    terminator: str = "\n"

    def __post_init__(self) -> None:
        for name in ("path", "ca_file"):
            if isinstance(getattr(self, name), os.PathLike):
                object.__setattr__(self, name, os.fspath(getattr(self, name)))
        for fault in itertools.chain(self._wrong_types(), self._wrong_together()):
            raise BadOption(fault)

    @classmethod
    def of(cls, options: dict[str, Any]) -> LogOptions:
        """Return options from a dict. Raises `BadOption`."""
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                raise BadOption(f"{name} is not an option of SocketHandler. Options: {', '.join(names)}.")
        return cls(**options)

    @property
    def is_udp(self) -> bool:
        return self.host is not None and self.sock_type == "udp"

    @property
    def address(self) -> str:
        """The address of the server, such as "tcp://127.0.0.1:5170"."""
        if self.host is None:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.ssl else self.sock_type}://{host}:{self.port}"

    def _wrong_types(self) -> Iterator[str]:
        for name in ("flush_limit", "drop_limit", "max_retry_times"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                yield f"{name} must be a whole number, at least 0, not {value!r}."
        for name in ("timeout", "retry_interval", "resend", "periodic_flush"):
            value = getattr(self, name)
            if value is None and name == "periodic_flush":
                continue
            if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
                yield f"{name} must be a number, at least 0, not {value!r}."
        if self.timeout == 0:
            yield "timeout must be greater than 0; it is in milliseconds."
        for name in ("ssl", "ssl_verify"):
            if type(getattr(self, name)) is not bool:
                yield f"{name} must be True or False, not {getattr(self, name)!r}."
        for name in ("host", "path", "sni_host", "ca_file"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                yield f"{name} must be a non-empty string, not {value!r}."
        for name in ("sock_type", "terminator"):
            if not isinstance(getattr(self, name), str):
                yield f"{name} must be a string, not {getattr(self, name)!r}."
        if self.port is not None and (type(self.port) is not int or not 0 <= self.port <= 65535):
            yield f"port must be a whole number from 0 to 65535, not {self.port!r}."
        if self.sock_type not in ("tcp", "udp"):
            yield f'sock_type must be "tcp" or "udp", not {self.sock_type!r}.'

    def _wrong_together(self) -> Iterator[str]:
        if self.host is None or self.port is None:
            if self.host is not None or self.port is not None:
                yield "host and port must be set together. Set both, or only path."
            elif self.path is None:
                yield "SocketHandler needs the log server's address. Set host and port, or path for a Unix socket."
            elif self.sock_type == "udp" or self.ssl:
                yield "path is a Unix stream socket, so it cannot be combined with sock_type udp or ssl."
        if self.flush_limit >= self.drop_limit:
            yield f"flush_limit ({self.flush_limit}) must be less than drop_limit ({self.drop_limit})."
        if self.ssl and self.sock_type == "udp":
            yield "ssl needs TCP. Set sock_type to tcp."
        if not self.ssl and (self.sni_host is not None or self.ca_file is not None):
            yield "sni_host and ca_file need TLS. Set ssl=True."
