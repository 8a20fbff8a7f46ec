"""Refused calls of functions and jobs: a log line, and the signal `call_refused`."""

from __future__ import annotations

import random
from math import inf
from typing import Any, Final, TypeVar

from resty_django.sansio import Step, Steps
from resty_django.text import logger, one_line

from .enforcement.settings import request_settings
from .errors import Limited, TooManyWaiting
from .signals import call_refused
from .statistics.catalog import JOB

log = logger("resty_django.limits")

R = TypeVar("R")

NOT_LOGGED: Final = frozenset({JOB})
"""Kinds of limits whose refusals are normal: the worker postpones the job."""
LONGEST_KEY: Final = 200
"""Maximum number of characters of a key in a log line."""


def announcing(steps: Steps[R], kind: str, name: str, sender: type[Any], key: object) -> Steps[R]:
    """Perform the steps; if they raise `Limited`, log it and send the signal first.

    `kind`: of the limit, as in the catalog. `name`: of the limit. `sender`: the class of its limiter.
    """
    try:
        return (yield from steps)
    except Limited as error:
        if kind not in NOT_LOGGED and not isinstance(error, TooManyWaiting):  # the latter logs itself
            _log(name, str(key), error.decision.retry_after)
        if call_refused.has_listeners(sender):
            named = {"sender": sender, "decision": error.decision, "kind": kind, "name": name, "key": str(key)}
            yield Step(lambda: call_refused.send_robust(**named), lambda: call_refused.asend_robust(**named))
        raise


def _log(name: str, key: str, seconds: float) -> None:
    """Log a refusal, or only the share LOG_REFUSALS of them."""
    share = request_settings().section.log_refusals
    if share < 1 and random.random() >= share:  # noqa: S311 (a sample of log lines)
        return
    outcome = "will not pass later either" if seconds == inf else f"would pass in {seconds:.3f} s"
    shown = f" of {one_line(key, LONGEST_KEY)}" if key else ""
    log.warning("refused by %s: a call%s; %s", name, shown, outcome, extra={"limit": name, "key": key})
