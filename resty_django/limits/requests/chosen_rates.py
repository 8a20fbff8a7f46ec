"""Limits whose rate depends on the request: on its customer's plan, for example.

    limit_req(rate=rate_of)                                    a function of the request returns the rate
    limit_req(tiers={"free": "60/m", "pro": "600/m"}, tier=plan_of)

Each rate has separate limits and state, so a customer who changes the tier begins with an unused limit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from django.http import HttpRequest
from django.utils.module_loading import import_string
from django.utils.translation import gettext, gettext_noop

from resty_django.callables import acall, call
from resty_django.conf import conf
from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger
from resty_django.text.suggestions import did_you_mean

from ..callers.keys import RequestFunction
from .check import LimitCheck
from .enforcer import Enforcer
from .results import LimitResult

log = logger("resty_django.limits")

Rate: TypeAlias = "str | float"
RateFunction: TypeAlias = RequestFunction[Any]
"""A function of the request that returns a rate, or None for no limit. May be a coroutine function."""

MISSING_FUNCTION: Final = gettext_noop(
    'Nothing names the tier of a request. Set RESTY_DJANGO["LIMITS"]["TIER"] to the dotted path of a function of the '
    "request, or remove the tiers."
)
MAX_RATES: Final = 256
"""The number of rates of a limit that are kept ready, and of unknown tiers that are logged."""


class Tiers:
    """Returns the rate of a request's tier.

    `rates`: the rate of each tier, or None for no limit. `tier`: a function of the request, or its dotted path, that
    returns the name of the tier (None: the setting TIER). A tier without a rate gets the rate of the first one.
    """

    def __init__(self, rates: Mapping[str, Any], tier: RateFunction | str | None) -> None:
        if not isinstance(rates, Mapping) or not rates:
            raise TypeError(f'tiers= must be a dict such as {{"free": "60/m", "pro": "600/m"}}, not {rates!r}.')
        self.rates = dict(rates)
        self._tier = tier
        self._unknown: set[str] = set()

    def choosing(self, request: HttpRequest) -> Steps[Any]:
        """Return the rate of the request's tier. Raise `TypeError` if no function names the tier."""
        tier = tier_function() if self._tier is None else self._tier
        if not tier:
            raise TypeError(
                "tiers= needs a function that returns the tier of a request. "
                'Pass tier=, or set RESTY_DJANGO["LIMITS"]["TIER"] to its dotted path.'
            )
        return self._rate_of((yield asking(_imported(tier) if isinstance(tier, str) else tier, request)))

    def _rate_of(self, tier: object) -> Any:
        """Return the rate of a tier. Log a tier without a rate, once per process."""
        try:
            return self.rates[tier]  # type: ignore[index]
        except (KeyError, TypeError):
            first = next(iter(self.rates))
            text = repr(tier)[:60]
            if text not in self._unknown and len(self._unknown) < MAX_RATES:
                self._unknown.add(text)
                tiers = ", ".join(map(str, self.rates))
                hint = did_you_mean(str(tier), self.rates, f"Tiers are {tiers}.")
                log.warning("A limit has no rate for the tier %s, so the rate of %r applies. %s", text, first, hint)
            return self.rates[first]


class RequestEnforcer(Enforcer):
    """Enforces the limits that are chosen for each request."""

    def __init__(self) -> None:
        super().__init__(())

    def choosing(self, request: HttpRequest) -> Steps[Enforcer | None]:
        """Return the enforcer for a request, or None if no limit applies."""
        raise NotImplementedError

    def decide(self, request: HttpRequest, kwargs: Mapping[str, object]) -> LimitCheck | LimitResult | None:
        enforcer = run(self.choosing(request))
        return None if enforcer is None else enforcer.decide(request, kwargs)

    async def acheck(self, request: HttpRequest, kwargs: Mapping[str, object]) -> LimitCheck | None:
        enforcer = await arun(self.choosing(request))
        return None if enforcer is None else await enforcer.acheck(request, kwargs)


class ChosenRates(RequestEnforcer):
    """Enforces the limits of the rate that is chosen for each request.

    `choice`: a function of the request that returns a rate, or `Tiers`. `build`: returns the enforcer of a rate; it
    raises `ValueError` or `TypeError`. `applies_to`: returns whether the limits apply to a request; if not, `choice` is
    not called.
    """

    def __init__(
        self,
        choice: RateFunction | Tiers,
        build: Callable[[Any], Enforcer],
        applies_to: Callable[[HttpRequest], bool] = lambda request: True,
    ) -> None:
        super().__init__()
        self._choice = choice
        self._applies_to = applies_to
        self._build = functools.lru_cache(MAX_RATES)(build)
        if isinstance(choice, Tiers):
            for rate in choice.rates.values():
                if rate is not None:
                    self._build(rate)

    def choosing(self, request: HttpRequest) -> Steps[Enforcer | None]:
        choice = self._choice
        if not self._applies_to(request):
            return None
        if isinstance(choice, Tiers):
            rate = yield from choice.choosing(request)
            return None if rate is None else self._build(rate)
        rate = yield asking(choice, request)
        if rate is None:
            return None
        try:
            return self._build(rate)
        except (ValueError, TypeError) as error:
            name = getattr(choice, "__qualname__", repr(choice))
            text = f"The rate that {name} returned cannot be used: {error}"
            raise type(error)(text) from error


def tier_function() -> RateFunction | None:
    """Return the function of the setting TIER, or None if it is not set. Raise `ImportError`."""
    path = conf.limits.tier
    return _imported(path) if path else None


def tier_problem() -> str:
    """Return why the setting TIER cannot name the tier of a request, and what to change, or ""."""
    try:
        missing = tier_function() is None
    except ImportError as error:
        text = gettext('RESTY_DJANGO["LIMITS"]["TIER"] cannot be imported: %(error)s. Correct the path.')
        return text % {"error": error}
    return gettext(MISSING_FUNCTION) if missing else ""


def asking(function: RateFunction, request: HttpRequest) -> Step:
    """Return the step that calls a function of the request, which may be a coroutine function."""
    return Step(call, acall, (function, request))


@functools.cache
def _imported(path: str) -> RateFunction:
    function: RateFunction = import_string(path)
    return function
