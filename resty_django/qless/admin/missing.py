"""The only page of the job queue if redis-py is not installed."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from resty_django.admin.base import ReadOnlyAdmin
from resty_django.extras import MissingExtra

from ..errors import CLAUSE
from ..models import Queue


class MissingRedisAdmin(ReadOnlyAdmin[Queue]):
    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("resty_qless.view_job")

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the command that installs the package (status 503, as for any page whose store is unavailable)."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {"title": _("Background jobs are not available"), "missing": MissingExtra(CLAUSE, "redis")}
        return self.page(request, "admin/resty_qless/missing.html", context, status=503)
