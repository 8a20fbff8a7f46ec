"""Settings for the metrics: `RESTY_DJANGO["METRICS"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Access to the metrics for clients other than users with the permission, and the maximum number of samples.

    `tokens`: accepted bearer tokens. `networks`: CIDR blocks whose clients need no token. `max_labels`: maximum number
    of samples per metric.
    """

    tokens: tuple[str, ...] = setting((), check=validators.tokens)
    networks: tuple[str, ...] = setting((), check=validators.networks)
    max_labels: int = setting(100, check=at_least(2))
