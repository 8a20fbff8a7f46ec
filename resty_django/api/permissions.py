"""Django's model permissions, checked for every view and method."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request


class HasViewPermission(BasePermission):
    """Require an authenticated user with the permission that the view's `permissions` names for the method.

    A method without an entry returns 405 to authenticated users.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        user = request.user
        if not user or not user.is_authenticated:
            return False
        method = "GET" if request.method == "HEAD" else request.method
        permission = view.permissions.get(method)
        return permission is None or user.has_perm(permission)
