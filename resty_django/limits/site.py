"""What the settings say about limits of requests, made ready for use; made anew when a setting has changed."""

from __future__ import annotations

from typing import Any

from django.core.signals import setting_changed

from resty_django.conf import conf
from resty_django.schema import SETTING

from .networks import Clients, Networks


class Site:
    """`clients` knows who sent a request; `exempt` are the networks that no limit applies to, None where there are
    none; `headers`: whether responses tell of their limits; `max_delay`: seconds that a sync view may sleep."""

    __slots__ = ("clients", "exempt", "headers", "max_delay", "section")

    def __init__(self) -> None:
        section = conf.limits
        self.section = section
        self.headers = section.headers
        self.max_delay = section.max_delay
        self.clients = Clients(section.proxies, section.proxy_header, section.ipv6_prefix)
        self.exempt = Networks(section.exempt_networks) or None


_known: Site | None = None


def site() -> Site:
    """The present one. Quick: it is asked with every request."""
    return _known or _made()


def _made() -> Site:
    global _known
    found = _known = Site()
    return found


def _forget(*, setting: str, **kwargs: Any) -> None:
    global _known
    if setting == SETTING:
        _known = None


setting_changed.connect(_forget, dispatch_uid="resty_django.limits.site")

__all__ = ["Site", "site"]
