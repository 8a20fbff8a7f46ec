"""The usage of the caller's own quotas as JSON, for Django REST framework."""

from __future__ import annotations

from typing import Any

from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from resty_django import extras

with extras.needed("The API of quotas needs"):
    from rest_framework.request import Request
    from rest_framework.response import Response
    from rest_framework.views import APIView

from .quota import Usage
from .usage import usage


@method_decorator(never_cache, name="dispatch")
class UsageView(APIView):
    """Returns the usage of the caller in each quota. Authentication and permissions are the defaults of the site."""

    def get(self, request: Request) -> Response:
        return Response([_shown(quota_usage) for quota_usage in usage(request)])


def _shown(quota_usage: Usage) -> dict[str, Any]:
    return {
        "quota": quota_usage.quota,
        "limit": quota_usage.limit,
        "used": quota_usage.used,
        "remaining": quota_usage.remaining,
        "starts_at": quota_usage.starts_at.isoformat(),
        "resets_at": quota_usage.resets_at.isoformat(),
    }
