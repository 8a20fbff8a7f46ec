"""An application for the server of `test_websocket_server.py`: at most one connection and two messages."""

from __future__ import annotations

import django

django.setup()

from resty_django.limits.websockets import WebSocketLimits  # noqa: E402

from .websocket_tools import echo  # noqa: E402

LEASE = 5

application = WebSocketLimits(echo, connections=1, messages="2/h", lease=LEASE, close_code=4429, name="served")
