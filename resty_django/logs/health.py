"""The probe of log shipping: whether the log servers take connections."""

from __future__ import annotations

from collections.abc import Iterator

from resty_django import health

from .connection import Connection
from .handler import handlers


def probe() -> Iterator[health.Finding]:
    """Connect once to the server of each handler that this process has; nothing is sent."""
    for address, options in {handler.options.address: handler.options for handler in handlers()}.items():
        connection = Connection(options)
        try:
            connection.open()
        except OSError as error:
            yield health.Finding("error", address, f"Log messages cannot be shipped: {type(error).__name__}: {error}")
            continue
        connection.close()
        text = "UDP: nobody can tell whether it is heard." if options.is_udp else "It takes connections."
        yield health.Finding("ok", address, text)
