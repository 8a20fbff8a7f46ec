"""System checks of limits.

Checks:
    resty_limits.E001: A rule in `LIMITS["RULES"]` cannot be used. The message names the field.
    resty_limits.E002: The login guard is not the first of `AUTHENTICATION_BACKENDS`. Move it to the top.
    resty_limits.E003: A rule has tiers, but `TIER` is missing or cannot be imported. Set it to the path of a
        function.
    resty_limits.W001: Rules match requests, but `LimitMiddleware` is not installed. Add it, or use the policies in
        `@limit()`.
    resty_limits.W002: The login guard lacks its middleware. Add `LoginGuardMiddleware`.
    resty_limits.W003: The middleware of the login guard is installed without the guard. Put the guard first in
        `AUTHENTICATION_BACKENDS`.
    resty_limits.W004: Limits by user, but no `AuthenticationMiddleware`. Add it, or use other keys and exemptions.
    resty_limits.W005: With `--deploy`: Django's settings say that the site is behind a proxy, but `PROXIES` is empty,
        so all clients count as one. Name the networks of the proxies.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Final

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from resty_django.conf import conf
from resty_django.conf.schema import key_text, see_key

from .callers.names import LOGIN_GUARD

LIMIT_MIDDLEWARE: Final = "resty_django.limits.middleware.LimitMiddleware"
LOGIN_MIDDLEWARE: Final = "resty_django.limits.login.LoginGuardMiddleware"


def check_rules(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return an error for each invalid rule, and a warning if the middleware is missing."""
    try:
        rules = conf.limits.rules
    except ImproperlyConfigured:
        return []  # the settings check reports it
    if not rules:
        return []
    from .specs.policy import PolicySpec
    from .specs.policy_validation import BadPolicy, from_values

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
    if any(spec.tiers for spec in specs.values()):
        from .requests.chosen_rates import tier_problem

        problem = tier_problem()
        if problem:
            messages.append(Error(f"A rule has rates for tiers. {problem}", hint=_hint("TIER"), id="resty_limits.E003"))
    if any(spec.matches_requests for spec in specs.values()) and not _has_middleware(LIMIT_MIDDLEWARE):
        messages.append(
            Warning(
                'A rule in RESTY_DJANGO["LIMITS"]["RULES"] matches requests, but LimitMiddleware is not in MIDDLEWARE.',
                hint=f'Add "{LIMIT_MIDDLEWARE}", or use the policies in @limit().',
                id="resty_limits.W001",
            )
        )
    return messages


def check_login_guard(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return an error if the login guard is not the first backend, and a warning if it or its middleware is missing."""
    backends = list(settings.AUTHENTICATION_BACKENDS)
    has_middleware = LOGIN_MIDDLEWARE in settings.MIDDLEWARE
    if LOGIN_GUARD not in backends:
        if not has_middleware:
            return []
        return [
            Warning(
                "LoginGuardMiddleware is in MIDDLEWARE, but LoginGuard is not in AUTHENTICATION_BACKENDS.",
                hint=f'Put "{LOGIN_GUARD}" first in AUTHENTICATION_BACKENDS.',
                id="resty_limits.W003",
            )
        ]
    messages: list[CheckMessage] = []
    if backends[0] != LOGIN_GUARD:
        messages.append(
            Error(
                "LoginGuard is not the first of AUTHENTICATION_BACKENDS, so passwords are hashed before it refuses.",
                hint=f'Put "{LOGIN_GUARD}" first.',
                id="resty_limits.E002",
            )
        )
    if not has_middleware:
        messages.append(
            Warning(
                "LoginGuard is in AUTHENTICATION_BACKENDS, but LoginGuardMiddleware is not in MIDDLEWARE: a refused "
                "log-in looks like a wrong password instead of a 429.",
                hint=f'Add "{LOGIN_MIDDLEWARE}".',
                id="resty_limits.W002",
            )
        )
    return messages


def check_users(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return a warning if limits need the user of a request, but no middleware sets it. Imports the URLs of the site.

    Views of Django REST framework authenticate without a middleware, so sites that use it are not checked.
    """
    if apps.is_installed("rest_framework") or _has_middleware(
        "django.contrib.auth.middleware.AuthenticationMiddleware"
    ):
        return []
    if getattr(settings, "ROOT_URLCONF", None):
        import_module(settings.ROOT_URLCONF)
    from .callers.keys import parse
    from .policies.registry import declared_policies
    from .specs.policy_validation import BadPolicy
    from .statistics.catalog import limits_by_user

    try:
        specs = declared_policies()
    except (BadPolicy, ImproperlyConfigured):
        return []  # other checks report it
    policies = [
        name for name, spec in specs.items() if parse(spec.key).needs_user or spec.exempt_users or spec.exempt_groups
    ]
    names = [*policies, *limits_by_user]
    if not names:
        return []
    return [
        Warning(
            f"These limits need request.user, but AuthenticationMiddleware is not in MIDDLEWARE: {', '.join(names)}.",
            hint='Add "django.contrib.auth.middleware.AuthenticationMiddleware", or use other keys and exemptions. '
            "If another middleware sets request.user, silence this warning.",
            id="resty_limits.W004",
        )
    ]


def check_proxies(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return a warning if the site is behind a proxy whose address would count as the address of all clients."""
    signs = ("SECURE_PROXY_SSL_HEADER", "USE_X_FORWARDED_HOST", "USE_X_FORWARDED_PORT")
    sign = next((name for name in signs if getattr(settings, name)), None)
    try:
        if sign is None or conf.limits.proxies:
            return []
    except ImproperlyConfigured:
        return []  # the settings check reports it
    return [
        Warning(
            f"{sign} is set, so the site is behind a proxy, but {key_text(('LIMITS', 'PROXIES'))} is empty: limits by "
            "address count all clients together.",
            hint="Name the networks of the proxies. If the server sets REMOTE_ADDR to the client's address, or no "
            f"limit is by address, silence this warning.{see_key(('LIMITS', 'PROXIES'))}",
            id="resty_limits.W005",
        )
    ]


def _error(text: str) -> Error:
    return Error(f'RESTY_DJANGO["LIMITS"]["RULES"]: {text}', hint=_hint("RULES"), id="resty_limits.E001")


def _hint(key: str) -> str | None:
    return see_key(("LIMITS", key)).strip() or None


def _has_middleware(wanted: str) -> bool:
    """Return whether this middleware, or a subclass, is in MIDDLEWARE."""
    for path in settings.MIDDLEWARE:
        try:
            middleware = import_string(path)
        except ImportError:
            continue
        if isinstance(middleware, type) and issubclass(middleware, import_string(wanted)):
            return True
    return False
