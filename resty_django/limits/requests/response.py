"""Responses to refused requests, as HTML or JSON."""

from __future__ import annotations

import json
from math import ceil, inf
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.template import TemplateDoesNotExist, loader
from django.utils.html import format_html
from django.utils.translation import get_language, gettext, ngettext

from resty_django.text import logger

from ..callers import request_settings
from ..decision import Decision
from ..refusals import Refusal
from .headers import MAX_FIELD_INTEGER, shown_name

log = logger("resty_django.limits")

PROBLEM_JSON: Final = "application/problem+json"


def response_to(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """Return a page if the client prefers HTML, else a problem in JSON (RFC 9457)."""
    section = request_settings.current().section
    # The first content type is for clients that accept any.
    types = (PROBLEM_JSON, "application/json", "text/html", "application/xhtml+xml")
    kind = request.get_preferred_type(types) or PROBLEM_JSON
    if "json" in kind:
        return problem_response(refusal, PROBLEM_JSON if section.problem_json else kind)
    status = refusal.status or section.status
    seconds = retry_after(refusal.decision)
    context = {
        "title": gettext("Too many requests"),
        "status": status,
        "retry_after": seconds,
        "decision": refusal.decision,
    }
    return _finished(HttpResponse(_page(section.template, context, request), status=status), seconds)


def problem_response(refusal: Refusal, content_type: str = PROBLEM_JSON) -> HttpResponse:
    """Return a problem in JSON (RFC 9457), of a type that draft-ietf-httpapi-ratelimit-headers registers."""
    seconds = retry_after(refusal.decision)
    title = gettext("Too many requests")
    if refusal.decision.failed:  # ON_ERROR is "closed"
        kind, title = "temporary-reduced-capacity", gettext("Temporarily unavailable")
    else:
        kind = "abnormal-usage-detected" if refusal.banned else "quota-exceeded"
    problem = {
        "type": f"https://iana.org/assignments/http-problem-types#{kind}",
        "title": title,
        "status": refusal.status or request_settings.current().section.status,
        "detail": gettext("This request can never pass.") if seconds is None else _advice(seconds),
        "retry_after": seconds,
        "violated-policies": list(map(shown_name, refusal.violated or (refusal.label,))),
    }
    return _finished(HttpResponse(json.dumps(problem), content_type=content_type, status=problem["status"]), seconds)


def _finished(response: HttpResponse, seconds: int | None) -> HttpResponse:
    """Set the header fields that every refusal has. `seconds`: see `retry_after`."""
    if seconds is not None:
        response.headers["Retry-After"] = str(seconds)
    response.headers["Cache-Control"] = "no-store"
    return response


def _page(template: str, context: dict[str, Any], request: HttpRequest) -> str:
    """Render the page of a refusal, with the built-in page as a fallback.

    Django finds the template of the package only if `resty_django.limits` is in INSTALLED_APPS and the loader of app
    templates is active; a site that only decorates its views may have neither.
    """
    try:
        return loader.render_to_string(template, context, request)
    except TemplateDoesNotExist as error:
        if error.args[0] != template:
            raise  # the missing template is one that this template extends or includes
    if template != "resty_limits/429.html":  # the default, which this package provides
        log.error("The template %s of LIMITS does not exist; showing the built-in page", template)
    return _builtin_page(context["title"], context["retry_after"])


def _builtin_page(title: str, seconds: int | None) -> str:
    """Render a page without styles and scripts, because a strict Content-Security-Policy would block them."""
    advice = "" if seconds is None else format_html("<p>{}</p>", _advice(seconds))
    return format_html(
        """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
</head>
<body>
<h1>{title}</h1>
{advice}
</body>
</html>
""",
        language=get_language() or "en",
        title=title,
        advice=advice,
    )


def _advice(seconds: int) -> str:
    text = ngettext("Please try again in %(seconds)s second.", "Please try again in %(seconds)s seconds.", seconds)
    return text % {"seconds": seconds}


def retry_after(decision: Decision) -> int | None:
    """Return the `Retry-After` of a refusal in seconds, rounded up, at least 1; None if it can never pass."""
    seconds = decision.retry_after
    return max(1, min(ceil(seconds), MAX_FIELD_INTEGER)) if seconds < inf else None
