"""Health probe for log shipping: connects to the log servers."""

from __future__ import annotations

from collections.abc import Iterator

from resty_django import health

from .connection import Connection
from .handler import handlers


def probe() -> Iterator[health.Finding]:
    """Connect once to the server of each handler in this process, without sending anything."""
    for address, options in {handler.options.address: handler.options for handler in handlers()}.items():
        connection = Connection(options)
        try:
            connection.open()
        except OSError as error:
            yield health.Finding("error", address, f"Log messages cannot be shipped: {type(error).__name__}: {error}")
            continue
        connection.close()
        text = "UDP: delivery cannot be verified." if options.is_udp else "The server accepts connections."
        yield health.Finding("ok", address, text)
