"""System checks of limits.

| id | meaning |
|---|---|
| `resty_limits.E001` | a rule of the setting RULES that cannot be used |
| `resty_limits.W001` | rules that match requests, without the middleware that enforces them |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from resty_django.conf import conf
from resty_django.conf.schema import see_key

HINT: Final = see_key(("LIMITS", "RULES")).strip() or None


def check_rules(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return an error for each rule that cannot be used, and a warning where the middleware is missing."""
    try:
        rules = conf.limits.rules
    except ImproperlyConfigured:
        return []  # the check of the settings says so
    if not rules:
        return []
    from .policies.spec import BadPolicy, PolicySpec, from_values

    messages: list[CheckMessage] = []
    specs: dict[str, PolicySpec] = {}
    for rule in rules:
        try:
            spec = from_values(rule)
        except BadPolicy as error:
            messages.append(_error(str(error)))
            continue
        if spec.name in specs:
            messages.append(_error(f"There are two rules with the name {spec.name!r}. Rename one."))
        specs[spec.name] = spec
    if any(spec.matches_requests for spec in specs.values()) and not _has_middleware():
        messages.append(
            Warning(
                'RESTY_DJANGO["LIMITS"]["RULES"] matches requests, but LimitMiddleware is not in MIDDLEWARE.',
                hint='Add "resty_django.limits.middleware.LimitMiddleware", or name the policies by @limit().',
                id="resty_limits.W001",
            )
        )
    return messages


def _error(text: str) -> Error:
    return Error(f'RESTY_DJANGO["LIMITS"]["RULES"]: {text}', hint=HINT, id="resty_limits.E001")


def _has_middleware() -> bool:
    from .middleware import LimitMiddleware

    for path in settings.MIDDLEWARE:
        try:
            middleware = import_string(path)
        except ImportError:
            continue
        if isinstance(middleware, type) and issubclass(middleware, LimitMiddleware):
            return True
    return False
