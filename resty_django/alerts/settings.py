"""Settings for the alerts: `RESTY_DJANGO["ALERTS"]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resty_django.conf import validators
from resty_django.conf.schema import at_least, duration, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsSettings:
    """Rules, and who receives the alerts.

    `to`: mail addresses (None: the site's ADMINS). `call`: dotted path of a function that takes an `Alert`.
    `interval`: seconds between two evaluations. `workers`: whether worker processes of the job queue evaluate the
    rules. `store`: the shared dictionary with the state.
    """

    rules: tuple[dict[str, Any], ...] = setting(())
    to: tuple[str, ...] | None = setting(None)
    call: str | None = setting(None, check=validators.dotted_path)
    interval: float = duration(30.0, check=at_least(1))
    workers: bool = setting(True)
    store: str = setting("default", check=validators.known_dict)
