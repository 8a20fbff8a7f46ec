"""Ships log records to a log server, over TCP, TLS, UDP or a Unix socket. No request waits for the network.

LOGGING = {
    "version": 1,
    "handlers": {
        "server": {
            "class": "resty_django.logs.SocketHandler",
            "host": "logs.example.org",
            "port": 5170,
            "periodic_flush": 1,
        },
    },
    "root": {"handlers": ["server"], "level": "INFO"},
}
"""

from __future__ import annotations

from .handler import SocketHandler, handlers
from .options import BadOption, LogOptions
from .shipper import ShippingCounts

__all__ = ["BadOption", "LogOptions", "ShippingCounts", "SocketHandler", "handlers"]
