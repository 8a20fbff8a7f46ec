"""The response to a request that a limit refused: a page or JSON, with the signal and the log line that go with it."""

from __future__ import annotations

import json
import logging
from typing import Any, Final, NamedTuple

from django.http import HttpResponse
from django.template import loader
from django.utils.translation import gettext

from .decision import Decision
from .headers import retry_after
from .signals import limited
from .site import site

log = logging.getLogger("resty_django.limits")

PROBLEM: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The type of RFC 9457 that draft-ietf-httpapi-ratelimit-headers registers."""
TYPES: Final = ("application/problem+json", "application/json", "text/html", "application/xhtml+xml")
"""What can be had; for a client that takes anything, the first."""


class Refusal(NamedTuple):
    """Which limit refused: its full `name`, the `label` that clients see, the class of its limiter, the `key` that the
    request was counted under, the decision, and the status of the response (None: that of the settings)."""

    name: str
    label: str
    sender: type[Any]
    key: str
    decision: Decision
    status: int | None = None


def announce(request: Any, refusal: Refusal) -> None:
    """Log and signal a refusal."""
    _log(request, refusal)
    if limited.has_listeners(refusal.sender):
        limited.send_robust(**_signal(request, refusal))


async def aannounce(request: Any, refusal: Refusal) -> None:
    """As `announce`, without blocking on a receiver of the signal."""
    _log(request, refusal)
    if limited.has_listeners(refusal.sender):
        await limited.asend_robust(**_signal(request, refusal))


def would_refuse(request: Any, refusal: Refusal) -> None:
    """Log a refusal of a limit that only watches."""
    _log(request, refusal, "would be refused")


def response_to(request: Any, refusal: Refusal) -> HttpResponse:
    """A page where the client prefers one, else a problem of RFC 9457 in JSON."""
    section = site().section
    status = refusal.status or section.status
    seconds = retry_after(refusal.decision)
    title = gettext("Too many requests")
    kind = request.get_preferred_type(TYPES) or TYPES[0]
    if "json" in kind:
        problem = {
            "type": PROBLEM,
            "title": title,
            "status": status,
            "retry_after": seconds,
            "violated-policies": [refusal.label],
        }
        response = HttpResponse(json.dumps(problem), content_type=kind, status=status)
    else:
        context = {"title": title, "status": status, "retry_after": seconds, "decision": refusal.decision}
        response = HttpResponse(loader.render_to_string(section.template, context, request), status=status)
    response.headers["Retry-After"] = str(seconds)
    response.headers["Cache-Control"] = "no-store"
    return response


def _signal(request: Any, refusal: Refusal) -> dict[str, Any]:
    return {
        "sender": refusal.sender,
        "request": request,
        "decision": refusal.decision,
        "name": refusal.name,
        "key": refusal.key,
    }


def _log(request: Any, refusal: Refusal, what: str = "refused") -> None:
    txid = getattr(request, "txid", None)
    log.warning(
        "%s by %s: %s %s of %s; one would pass in %.3f s%s",
        what,
        refusal.name,
        request.method,
        request.path.encode("unicode_escape").decode("ascii"),
        refusal.key,
        refusal.decision.retry_after,
        f" [{txid}]" if txid else "",
        extra={"request": request, "limit": refusal.name, "key": refusal.key, "txid": txid},
    )


__all__ = ["Refusal", "aannounce", "announce", "response_to", "would_refuse"]
