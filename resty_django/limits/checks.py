"""System checks of limits.

| id | meaning |
|---|---|
| `resty_limits.E001` | a rule in the setting RULES is not valid |
| `resty_limits.W001` | rules match requests, but the middleware that enforces them is missing |
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
    """Return an error for each invalid rule, and a warning if the middleware is missing."""
    try:
        rules = conf.limits.rules
    except ImproperlyConfigured:
        return []  # the settings check reports it
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
            messages.append(_error(f"Two rules have the name {spec.name!r}. Rename one of them."))
        specs[spec.name] = spec
    if any(spec.matches_requests for spec in specs.values()) and not _has_middleware():
        messages.append(
            Warning(
                'A rule in RESTY_DJANGO["LIMITS"]["RULES"] matches requests, but LimitMiddleware is not in MIDDLEWARE.',
                hint='Add "resty_django.limits.middleware.LimitMiddleware", or use the policies in @limit().',
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
