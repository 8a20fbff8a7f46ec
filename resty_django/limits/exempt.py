"""Requests that a limit does not apply to: by network, by permission, by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .networks import Networks
from .site import site


class Exemption:
    """Exempts a request from one of `networks`, of a user with one of `permissions`, or that `function` is true of.

    Raises `ValueError` where a text is no network, or no permission such as "shop.add_order".
    """

    __slots__ = ("function", "networks", "permissions")

    def __init__(
        self,
        networks: Iterable[str] = (),
        permissions: Iterable[str] = (),
        function: Callable[[Any], object] | None = None,
    ) -> None:
        self.networks = Networks(networks)
        self.permissions = tuple(permissions)
        self.function = function
        for permission in self.permissions:
            if "." not in permission:
                raise ValueError(f'{permission!r} is not a permission with its app, such as "shop.add_order".')

    def __bool__(self) -> bool:
        return bool(self.networks or self.permissions or self.function)

    def applies(self, request: Any) -> bool:
        """Whether the request is exempt. Asks the database for permissions, once for a user."""
        if self.networks and site().clients.address(request) in self.networks:
            return True
        if self.function is not None and self.function(request):
            return True
        return any(request.user.has_perm(name) for name in self.permissions)

    async def aapplies(self, request: Any) -> bool:
        """As `applies`, without blocking. The user has to be loaded."""
        if self.networks and site().clients.address(request) in self.networks:
            return True
        if self.function is not None and self.function(request):
            return True
        for name in self.permissions:
            if await request.user.ahas_perm(name):
                return True
        return False


__all__ = ["Exemption"]
