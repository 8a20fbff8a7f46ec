"""Clients of the UDP ID server, for any Python program: they need msgspec, and neither Django nor settings.

    from resty_django.ids.client import IdClient

    with IdClient(["10.0.0.1:1200", "10.0.0.2:1200"]) as ids:
        ids.get("order_id", "shop")               # "O261121000042"
        ids.get_many("order_id", 100, "shop")
        ids.monitor("order_id", "shop").counter

`AsyncIdClient` has the same methods for asyncio. Both try the nodes in random order and go on to the next one when a
node is silent, refuses the connection or answers `unavailable`; a node that failed is tried last for a pause that
grows with each failure. A server's refusal is raised as the class of `resty_django.ids.errors` that caused it, and
NodesDown when no node gave an answer.

UDP loses datagrams. When the reply to a `get` is lost, the server has spent a number that nobody received, and the
request is sent again: the numbers then have a gap. They never repeat.
"""

from __future__ import annotations

from .aio import AsyncIdClient
from .nodes import NodesDown
from .sync import IdClient
from .wire import MonitorReply

__all__ = ["AsyncIdClient", "IdClient", "MonitorReply", "NodesDown"]
