"""The settings of the metrics: `RESTY_DJANGO["METRICS"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Who may see the metrics besides users with the permission, and how many there are at most.

    `tokens`: bearer tokens, each of which opens them. `networks`: CIDR blocks whose connections need none.
    `max_labels`: the most samples of one metric.
    """

    tokens: tuple[str, ...] = setting((), check=validators.tokens)
    networks: tuple[str, ...] = setting((), check=validators.networks)
    max_labels: int = setting(100, check=at_least(2))
