"""The page on which customers see the usage of their usage."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .usage import usage

TEMPLATE = "resty_limits/usage.html"


@never_cache
@require_safe
def usage_page(request: HttpRequest) -> HttpResponse:
    """Show the usage of the request's customer, with the template `resty_limits/usage.html`."""
    return render(request, TEMPLATE, {"usages": usage(request)})
