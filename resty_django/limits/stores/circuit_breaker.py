"""Circuit breakers for the stores of limits.

from resty_django.limits import current_outages

for outage in current_outages():
    print(outage.store, outage.since, outage.error, outage.calls)
"""

from __future__ import annotations

from resty_django import circuit_breaker
from resty_django.circuit_breaker import BYPASS_SECONDS, Outage, breakers_of
from resty_django.text import logger

log = logger("resty_django.limits")


class CircuitBreaker(circuit_breaker.CircuitBreaker):
    """The state of one store of limits in this process. `calls`: decisions without it."""

    def log_failure(self, error: Exception) -> None:
        log.error("The store %r of limits does not answer; limits follow their on_error: %s", self.name, error)

    def log_recovery(self, seconds: float) -> None:
        log.warning(
            "The store %r of limits answers again after %.1f s and %d decisions without it",
            *(self.name, seconds, self.calls),
        )


def current_outages() -> list[Outage]:
    """Return the current outages of this process, ordered by the names of their stores."""
    return sorted(outage for breaker in breakers_of(CircuitBreaker) if (outage := breaker.outage()))


__all__ = ["BYPASS_SECONDS", "CircuitBreaker", "Outage", "current_outages"]
