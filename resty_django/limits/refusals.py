"""Refusals of requests, and of calls of functions and jobs: a log line and a signal."""

from __future__ import annotations

import random
from math import inf
from typing import NamedTuple, TypeVar

from django.dispatch import Signal
from django.http import HttpRequest

from resty_django.sansio import Step, Steps
from resty_django.text import logger, one_line

from .callers import request_settings
from .decision import Decision
from .errors import Limited, TooManyWaiting
from .statistics.catalog import LimitKind

log = logger("resty_django.limits")

R = TypeVar("R")

request_refused = Signal()
"""A request was refused.

Sent with `sender` (the class of the limiter), `request`, `decision`, `name` (of the limit) and `key` (of the request).
An error in a receiver is logged and does not affect the request.
"""

call_refused = Signal()
"""A call of a limited function or a job was refused.

Sent with `sender` (the class of the limiter), `decision`, `kind` ("function" or "job"), `name` (of the
limit) and `key` (of the call), before `Limited` is raised. An error in a receiver is logged and does not affect the
call.
"""


class Refusal(NamedTuple):
    """A refusal of a request by a limit.

    `name`: the full name of the limit. `label`: the name that clients see. `sender`: the class of its limiter. `key`:
    the key of the request. `status`: the status of the response (None: the setting STATUS). `violated`: the labels of
    all limits that refuse the request (empty: only this one). `banned`: whether the key is banned or blocked.
    """

    name: str
    label: str
    sender: type[object]
    key: str
    decision: Decision
    status: int | None = None
    violated: tuple[str, ...] = ()
    banned: bool = False


def announce(request: HttpRequest, refusal: Refusal) -> None:
    """Log a refusal and send the signal."""
    _log_request(request, refusal)
    if request_refused.has_listeners(refusal.sender):
        request_refused.send_robust(**_signal(request, refusal))


async def aannounce(request: HttpRequest, refusal: Refusal) -> None:
    """Run `announce` without blocking on receivers of the signal."""
    _log_request(request, refusal)
    if request_refused.has_listeners(refusal.sender):
        await request_refused.asend_robust(**_signal(request, refusal))


def would_refuse(request: HttpRequest, refusal: Refusal) -> None:
    """Log a refusal in shadow mode."""
    _log_request(request, refusal, "would be refused")


def announcing(steps: Steps[R], kind: str, name: str, sender: type[object], key: object) -> Steps[R]:
    """Perform the steps of a call; if they raise `Limited`, log it and send the signal first.

    `kind`: of the limit, as in the catalog. `name`: of the limit. `sender`: the class of its limiter.
    """
    try:
        return (yield from steps)
    except Limited as error:
        # The worker only postpones a refused job; too many waiting calls have been logged.
        if kind != LimitKind.JOB and not isinstance(error, TooManyWaiting):
            _log_call(name, str(key), error.decision.retry_after)
        if call_refused.has_listeners(sender):
            named = {"sender": sender, "decision": error.decision, "kind": kind, "name": name, "key": str(key)}
            yield Step(lambda: call_refused.send_robust(**named), lambda: call_refused.asend_robust(**named))
        raise


def _signal(request: HttpRequest, refusal: Refusal) -> dict[str, object]:
    return {
        "sender": refusal.sender,
        "request": request,
        "decision": refusal.decision,
        "name": refusal.name,
        "key": refusal.key,
    }


def _log_request(request: HttpRequest, refusal: Refusal, outcome: str = "refused") -> None:
    """Log a refusal, or only the share LOG_REFUSALS of them."""
    share = request_settings.current().section.log_refusals
    if share < 1 and random.random() >= share:  # noqa: S311 (a sample of log lines)
        return
    txid = getattr(request, "txid", None)
    never = refusal.decision.retry_after == inf
    log.warning(
        "%s by %s: %s %s of %s; %s%s",
        outcome,
        refusal.name,
        request.method,
        request.path,
        refusal.key,
        ("blocked" if refusal.banned else "its cost can never pass")
        if never
        else f"would pass in {refusal.decision.retry_after:.3f} s",
        f" [{txid}]" if txid else "",
        extra={"request": request, "limit": refusal.name, "key": refusal.key, "txid": txid},
    )


def _log_call(name: str, key: str, seconds: float) -> None:
    """Log a refusal, or only the share LOG_REFUSALS of them."""
    share = request_settings.current().section.log_refusals
    if share < 1 and random.random() >= share:  # noqa: S311 (a sample of log lines)
        return
    outcome = "will not pass later either" if seconds == inf else f"would pass in {seconds:.3f} s"
    shown = f" of {one_line(key, 200)}" if key else ""
    log.warning("refused by %s: a call%s; %s", name, shown, outcome, extra={"limit": name, "key": key})
