"""The settings of request limits, prepared for use."""

from __future__ import annotations

import functools
from typing import Final

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING

from .client_address import ClientResolver, Networks

DRAFT: Final = 1
"""The flag of the header fields `RateLimit` and `RateLimit-Policy`, which a draft of the IETF defines."""
LEGACY: Final = 2
"""The flag of the `X-RateLimit` fields."""


class RequestSettings:
    """The prepared settings.

    `clients`: resolves the address of a client. `exempt`: exempt networks, or None. `headers`: flags of the
    header fields that report limits. `max_delay`: seconds that a sync view may sleep. `max_wait`: seconds that a
    request may wait for a token bucket without a `max_wait`. `max_waiting`: the maximum number of requests of this
    process that wait at the same time.
    """

    __slots__ = ("clients", "exempt", "headers", "max_delay", "max_wait", "max_waiting", "section")

    def __init__(self) -> None:
        section = conf.limits
        self.section = section
        flags = {"both": DRAFT | LEGACY, "RateLimit": DRAFT, "X-RateLimit": LEGACY, "none": 0}
        self.headers = flags[section.headers]
        self.max_delay = section.max_delay
        self.max_wait = section.max_wait
        self.max_waiting = section.max_waiting
        self.clients = ClientResolver(section.proxies, section.proxy_header, section.ipv6_prefix)
        self.exempt = Networks(section.exempt_networks) or None


@functools.cache
def current() -> RequestSettings:
    """Return the settings in force. They are prepared again after a change."""
    return RequestSettings()


on_change(current.cache_clear, SETTING)
