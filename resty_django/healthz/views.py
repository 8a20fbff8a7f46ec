"""The views: status 200 or 503, and nothing that a stranger could use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .readiness import CHECKS, Readiness

_readiness = cache(Readiness)


@login_not_required
@never_cache
@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """Return 200: this process answers. Uses no store."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@never_cache
@require_safe
def ready(request: HttpRequest, parts: Iterable[str] = tuple(CHECKS)) -> HttpResponse:
    """Return 200 if all `parts` respond, otherwise 503. The log says which one does not."""
    if _readiness(tuple(parts)).is_ready():
        return HttpResponse("ok\n", content_type="text/plain")
    response = HttpResponse("not ready\n", status=503, content_type="text/plain")
    # Django would log each of them as an error, which by default it mails to ADMINS.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response
