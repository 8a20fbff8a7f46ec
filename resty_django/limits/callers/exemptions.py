"""The requests to which a limit applies: exemptions by network, permission or function, and methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django.http import HttpRequest

from resty_django.callables import plain_function, plain_value
from resty_django.users import user_of

from . import request_settings
from .client_address import Networks
from .keys import RequestFunction

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")


class Exemption:
    """Exempts requests from `networks`, by users with one of `permissions`, and for which `function` returns true.

    Raises `ValueError` if a string is not a network, or not a permission such as "shop.add_order".
    """

    __slots__ = ("function", "networks", "permissions")

    def __init__(
        self,
        networks: Iterable[str] = (),
        permissions: Iterable[str] = (),
        function: RequestFunction[object] | None = None,
    ) -> None:
        self.networks = Networks(networks)
        self.permissions = tuple(permissions)
        self.function = plain_function(function, "exempt of a limit")
        for permission in self.permissions:
            if "." not in permission:
                raise ValueError(f'{permission!r} is not a permission. Write it with its app, as in "shop.add_order".')

    def __bool__(self) -> bool:
        return bool(self.networks or self.permissions or self.function)

    @property
    def needs_user(self) -> bool:
        """Whether the user must be loaded first."""
        return bool(self.permissions)

    def applies(self, request: HttpRequest) -> bool:
        """Return whether the request is exempt. Load the user's permissions from the database, once per user."""
        if self._exempts(request):
            return True
        user = self._user(request)
        return user is not None and any(user.has_perm(name) for name in self.permissions)

    async def aapplies(self, request: HttpRequest) -> bool:
        """Run `applies` without blocking the event loop. The user must be loaded already."""
        if self._exempts(request):
            return True
        user = self._user(request)
        for name in self.permissions if user is not None else ():
            if await user.ahas_perm(name):
                return True
        return False

    def _user(self, request: HttpRequest) -> Any:
        return user_of(request, "exempt_permissions of a limit") if self.permissions else None

    def _exempts(self, request: HttpRequest) -> bool:
        """Return whether the request is exempt regardless of the permissions of its user."""
        if self.networks and request_settings.current().clients.address(request.META) in self.networks:
            return True
        return self.function is not None and bool(plain_value(self.function(request), "exempt of a limit"))


def limited_methods(methods: Iterable[str]) -> frozenset[str]:
    """Return the methods to which a limit for `methods` applies: GET includes HEAD, which runs the same view."""
    names = frozenset(methods)
    return names | {"HEAD"} if "GET" in names else names
