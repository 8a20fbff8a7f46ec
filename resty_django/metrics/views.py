"""The view that Prometheus scrapes."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from resty_django.extras import MissingExtra

from .access import VIEW_METRICS, allowed


@login_not_required
@never_cache
@require_safe
def view(request: HttpRequest) -> HttpResponse:
    """Return all metrics, in the format that the `Accept` header asks for: Prometheus or OpenMetrics.

    Return 401 for anonymous clients, 403 for users without `resty_django.view_metrics`, and 503 with an explanation if
    prometheus-client is not installed.
    """
    if not allowed(request):
        if getattr(getattr(request, "user", None), "is_authenticated", False):
            return HttpResponse(f"You need the permission {VIEW_METRICS}.\n", status=403, content_type="text/plain")
        return HttpResponse(
            "Send a token from METRICS.TOKENS, connect from one of METRICS.NETWORKS, or sign in.\n",
            status=401,
            content_type="text/plain",
            headers={"WWW-Authenticate": 'Bearer realm="metrics"'},
        )
    try:
        from .exposition import exposed
    except MissingExtra as error:
        return HttpResponse(f"{error}\n", status=503, content_type="text/plain")
    content, content_type = exposed(request.headers.get("Accept", ""))
    return HttpResponse(content, content_type=content_type)
