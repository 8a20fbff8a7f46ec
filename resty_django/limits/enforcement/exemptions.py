"""Exemptions from limits: by network, by permission, by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .client_address import Networks
from .settings import request_settings


class Exemption:
    """Exempts requests from `networks`, of users with one of `permissions`, and for which `function` returns true.

    Raises `ValueError` where a text is not a network, or not a permission such as "shop.add_order".
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
        """Whether the request is exempt. Loads the user's permissions from the database, once for a user."""
        return self._exempts(request) or any(request.user.has_perm(name) for name in self.permissions)

    async def aapplies(self, request: Any) -> bool:
        """As `applies`, without blocking. The user has to be loaded."""
        if self._exempts(request):
            return True
        for name in self.permissions:
            if await request.user.ahas_perm(name):
                return True
        return False

    def _exempts(self, request: Any) -> bool:
        """Whether it is exempt whatever the permissions of its user."""
        if self.networks and request_settings().clients.address(request) in self.networks:
            return True
        return self.function is not None and bool(self.function(request))
