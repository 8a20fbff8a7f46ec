"""Permissions to write rules, by kind."""

from __future__ import annotations

from django.utils.translation import gettext as _
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request


def require_kind(request: Request, *kinds: str) -> None:
    """Raise PermissionDenied unless the user may write rules of all these kinds."""
    permissions = {"lua": "resty_ids.change_lua_rule", "python": "resty_ids.change_python_rule"}
    for kind in kinds:
        permission = permissions.get(kind)
        if permission and not request.user.has_perm(permission):
            raise PermissionDenied(_("Rules of kind %s require the permission %s.") % (kind, permission))
