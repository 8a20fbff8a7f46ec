"""Clients of the UDP ID server, for any Python program. They require msgspec, but neither Django nor settings.

    from resty_django.ids.client import IdClient

    with IdClient(["10.0.0.1:1200", "10.0.0.2:1200"]) as ids:
        ids.get("order_id", "shop")               # "O261121000042"
        ids.get_many("order_id", 100, "shop")
        ids.monitor("order_id", "shop").counter

`AsyncIdClient` has the same methods for asyncio. Both try the nodes in random order, and the next node if one is
silent, refuses the connection or answers `unavailable`. A failed node is tried last for a period that grows with each
failure. If a server refuses a request, the client raises the matching class of `resty_django.ids.errors`; if no node
answers, it raises NodesDown.

UDP can lose datagrams. If the reply to a `get` is lost, the server has used a number that no client received, and the
client sends the request again: the numbers then have a gap. They never repeat.
"""

from __future__ import annotations

from .aio import AsyncIdClient
from .nodes import NodesDown
from .sync import IdClient
from .wire import MonitorReply

__all__ = ["AsyncIdClient", "IdClient", "MonitorReply", "NodesDown"]
