"""Who may do what: Django's model permissions, checked on every address."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request


class HasViewPermission(BasePermission):
    """The user is authenticated and has the permission that the view's `permissions` names for the method.

    A method that is not named there is refused to everybody but answered 405 to those who are authenticated.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        user = request.user
        if not user or not user.is_authenticated:
            return False
        method = "GET" if request.method == "HEAD" else request.method
        wanted = view.permissions.get(method)
        return wanted is None or user.has_perm(wanted)
