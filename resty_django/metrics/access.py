"""Access to the metrics: by token, by network, or by user permission."""

from __future__ import annotations

import ipaddress
from typing import Final

from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from resty_django.conf import conf

VIEW_METRICS: Final = "resty_django.view_metrics"


def allowed(request: HttpRequest) -> bool:
    """Return whether the request is allowed by one of the three. Without settings, only the permission counts."""
    settings = conf.metrics
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and any(
        constant_time_compare(token.strip(), accepted) for accepted in settings.tokens
    ):
        return True
    if settings.networks and _within(request.META.get("REMOTE_ADDR", ""), settings.networks):
        return True
    user = getattr(request, "user", None)
    return user is not None and user.has_perm(VIEW_METRICS)


def _within(address: str, networks: tuple[str, ...]) -> bool:
    try:
        client = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket has no address
        return False
    client = getattr(client, "ipv4_mapped", None) or client
    return any(client in ipaddress.ip_network(network) for network in networks)
