"""The page of the job queue without redis-py."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _

from resty_django import extras
from resty_django.admin.base import ReadOnlyAdmin, viewer_page

from ..errors import CLAUSE
from ..models import Queue
from . import PERMISSION


class MissingRedisAdmin(ReadOnlyAdmin[Queue]):
    """The only page of the job queue if redis-py is not installed."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(PERMISSION)

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show the command that installs the package (status 503, as for any page whose store is unavailable)."""
        context = {"title": _("Background jobs are not available"), "missing": extras.MissingExtra(CLAUSE, "redis")}
        return self.page(request, "admin/resty_qless/missing.html", context, status=503)
