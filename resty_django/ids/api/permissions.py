"""Who may do what: Django's model permissions, checked on every address."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

KIND_PERMISSIONS = {"lua": "resty_ids.change_lua_rule", "python": "resty_ids.change_python_rule"}


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


def require_kind(request: Request, *kinds: str) -> None:
    """PermissionDenied unless the user may write rules of all these kinds."""
    for kind in kinds:
        wanted = KIND_PERMISSIONS.get(kind)
        if wanted and not request.user.has_perm(wanted):
            raise PermissionDenied(_("Rules of kind %s need the permission %s.") % (kind, wanted))
