"""The page that explains the parts: each has a button, and shows the effect next to it.

A button is a POST that stores its effect in the visitor's session and returns to the page, so everything works without
a script. With `live.js`, the page follows jobs and late replies of other processes automatically.
"""

from __future__ import annotations

import http.client
import logging
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, Final

import msgspec
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST
from rest_framework.authtoken.models import Token

from project import ports
from project.shop.everywhere import PRODUCT, Reply, ask, replies, wait
from project.shop.tasks import practice
from project.shop.traces import JobTrace, job_trace, log_lines
from resty_django.admin.base import answer_unchanged
from resty_django.cache import mlcaches
from resty_django.events import EventError
from resty_django.ids import next_id
from resty_django.ids.errors import IdError
from resty_django.limits import get_policy, limit, limit_count
from resty_django.qless import QlessError
from resty_django.redis import StoreError
from resty_django.shdict import SharedDictError
from resty_django.txid import current

log = logging.getLogger("project.shop")

SESSION_KEY: Final = "parts"
RULE: Final = "order_id"
POLICY: Final = "try-it"
REQUESTS: Final = 20
LIMIT_HEADERS: Final = ("Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining")
APP: Final = "shop"
TILL: Final = "till"
"""The user of the demo data that may issue IDs over HTTP."""


@require_GET
@limit(POLICY)
def limited(request: HttpRequest) -> HttpResponse:
    """Answer, as often as the policy allows. The page calls this view, and links to it."""
    return HttpResponse("OK\n", content_type="text/plain")


def _ids(request: HttpRequest) -> dict[str, Any]:
    return {"python": next_id(RULE, app=APP), "udp": _id_over_udp(), "http": _id_over_http()}


def _id_over_udp() -> str:
    """Return an ID from the UDP server, or its error message; empty if it does not respond."""
    if not settings.DEMO_UDP:
        return ""
    host, port = _address(settings.DEMO_UDP)
    question: dict[str, object] = {"action": "get", "rule_name": RULE, "app_name": APP, "seq": 1}
    reply = ports.ask_ids(host, port, question, timeout=1)
    return "" if reply is None else str(reply.get("data") or reply.get("msg", ""))


def _address(text: str) -> tuple[str, int]:
    host, _colon, port = text.rpartition(":")
    return host, int(port)


def _id_over_http() -> str:
    """Return an ID from the HTTP API of this site, or the status of its error; empty if it does not respond."""
    token = Token.objects.filter(user__username=TILL).first()
    if not settings.DEMO_HTTP or token is None:
        return ""
    connection = http.client.HTTPConnection(*_address(settings.DEMO_HTTP), timeout=5)
    headers = {"Content-Type": "application/json", "Authorization": f"Token {token.key}", "Host": "localhost"}
    try:
        connection.request("POST", f"/api/ids/rules/{RULE}/ids/", msgspec.json.encode({"app": APP}), headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
    return str(msgspec.json.decode(body)["ids"][0]) if response.status == 200 else f"{response.status}"


def _limits(request: HttpRequest) -> dict[str, Any]:
    responses = [limited(_as_get(request)) for _number in range(REQUESTS)]
    refused = [response for response in responses if response.status_code != 200]
    shown = (refused or responses)[0]
    return {
        "statuses": [response.status_code for response in responses],
        "passed": len(responses) - len(refused),
        "status": shown.status_code,
        "headers": [[name, shown[name]] for name in LIMIT_HEADERS if name in shown],
    }


def _as_get(request: HttpRequest) -> HttpRequest:
    """Return a GET request for `limited` from the same client."""
    copy = HttpRequest()
    copy.method, copy.path = "GET", reverse("shop:limited")
    copy.META = {**request.META, "REQUEST_METHOD": "GET"}
    return copy


def _everywhere(*actions: str) -> Callable[[HttpRequest], dict[str, Any]]:
    def run(request: HttpRequest) -> dict[str, Any]:
        requests = {}
        for action in actions:
            requests[action] = ask(action)
            wait(requests[action])
        return requests

    return run


def _forget(request: HttpRequest) -> dict[str, Any]:
    mlcaches["default"].delete(PRODUCT)
    return {"deleted": True}


def _job(request: HttpRequest) -> dict[str, Any]:
    if not settings.JOBS:
        return {}
    jid = practice.delay().id
    log.info("job %s is enqueued", jid)
    return {"jid": jid, "txid": current()}


ACTIONS: Final[dict[str, tuple[str, Callable[[HttpRequest], dict[str, Any]]]]] = {
    "ids": ("ids", _ids),
    "limits": ("limits", _limits),
    "look-up": ("cache", _everywhere("look_up")),
    "forget": ("cache", _forget),
    "job": ("jobs", _job),
    "greet": ("events", _everywhere("greet")),
    "add": ("dictionary", _everywhere("add", "read")),
    "trace": ("txid", _job),
}
"""The part and the function of each button."""


@require_POST
@limit_count(120, per="1min", name="parts")
def try_part(request: HttpRequest, action: str) -> HttpResponseRedirect:
    """Run the action of a button, and return to its part of the page."""
    if action not in ACTIONS:
        raise Http404
    part, run = ACTIONS[action]
    try:
        effect = run(request)
    except (IdError, SharedDictError, EventError, QlessError, StoreError) as error:
        effect = {"error": str(error)}
    request.session[SESSION_KEY] = {**request.session.get(SESSION_KEY, {}), part: effect}
    return redirect(f"{reverse('shop:parts')}#{part}")


@require_GET
@never_cache
def parts(request: HttpRequest) -> HttpResponseBase:
    """Show all parts, with the effects of the visitor's buttons."""
    effects: dict[str, dict[str, Any]] = request.session.get(SESSION_KEY, {})
    context = {
        "effects": effects,
        "limited_url": reverse("shop:limited"),
        "rule": RULE,
        "policy": get_policy(POLICY),
        "requests": REQUESTS,
        "has_jobs": settings.JOBS,
        "in_demo": bool(settings.DEMO_HTTP),
        "job": _job_trace(effects, "jobs"),
        "traced": _job_trace(effects, "txid"),
        "lines": log_lines(effects.get("txid", {}).get("txid", "")),
        "greetings": _replies(effects, "events", "greet"),
        "lookups": _replies(effects, "cache", "look_up"),
        "increments": list(zip_longest(*(_replies(effects, "dictionary", action) for action in ("add", "read")))),
    }
    return answer_unchanged(request, TemplateResponse(request, "shop/parts.html", context))


def _job_trace(effects: dict[str, dict[str, Any]], part: str) -> JobTrace | None:
    jid = effects.get(part, {}).get("jid")
    return job_trace(jid) if jid else None


def _replies(effects: dict[str, dict[str, Any]], part: str, action: str) -> list[Reply]:
    request_id = effects.get(part, {}).get(action)
    try:
        return replies(request_id) if request_id else []
    except SharedDictError:
        return []
