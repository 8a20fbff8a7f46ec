"""The authentication backend of the login guard. It must be the first one.

    AUTHENTICATION_BACKENDS = [
        "resty_django.limits.login.LoginGuard",
        "django.contrib.auth.backends.ModelBackend",
    ]

Django asks the backends in turn. This one authenticates nobody: it raises `PermissionDenied` for a refused log-in, so
Django asks no further one, and no password is hashed. `authenticate()` then returns None, as for a wrong password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

from ..callers.names import LOGIN_GUARD, spelling
from ..refusals import aannounce, announce
from . import guard

log = logger("resty_django.limits")

REFUSAL_ATTRIBUTE: Final = "_resty_login_refusal"
"""The attribute of a request whose log-in was refused, for the middleware."""
NAME_ATTRIBUTE: Final = "_resty_login_name"
"""The attribute of a request with the name of its log-in, whose count is reset on success."""


class LoginGuard:
    """Refuses log-ins of banned addresses and names; authenticates nobody.

    It has no `get_user`, so that `Client.force_login` of Django's test client chooses another backend.
    """

    def authenticate(self, request: HttpRequest | None, **credentials: object) -> None:
        """Raise `PermissionDenied` if the log-in is refused, and `StoreFailed` if ON_ERROR is "raise"."""
        run(_checking(request, credentials))

    async def aauthenticate(self, request: HttpRequest | None, **credentials: object) -> None:
        """Run `authenticate` without blocking the event loop."""
        await arun(_checking(request, credentials))


def _checking(request: HttpRequest | None, credentials: Mapping[str, object]) -> Steps[None]:
    """Raise `PermissionDenied` if the log-in that begins is refused, and mark its request."""
    http_request, name = guard.plain_request(request), guard.name_in(credentials)
    if http_request is not None:
        setattr(http_request, NAME_ATTRIBUTE, name)
    refusal = yield from guard.refusing(guard.keys_of(http_request, name), counted=True)
    if refusal is None:
        return
    if http_request is None:
        log.warning("refused by %s: a log-in of %s without a request", refusal.name, refusal.key)
    else:
        yield Step(announce, aannounce, (http_request, refusal))
        setattr(http_request, REFUSAL_ATTRIBUTE, refusal)
    raise PermissionDenied("Too many failed log-ins.")


def count_failure(
    sender: object, credentials: Mapping[str, object], request: HttpRequest | None = None, **kwargs: object
) -> None:
    """Count a failed log-in (receiver of `user_login_failed`)."""
    if LOGIN_GUARD in settings.AUTHENTICATION_BACKENDS:
        http_request, name = guard.plain_request(request), guard.name_in(credentials)
        run(guard.counting(*guard.both_keys_of(http_request, name)))


def reset_count(sender: object, request: HttpRequest | None, user: AbstractBaseUser, **kwargs: object) -> None:
    """Forget the failed log-ins of a name (receiver of `user_logged_in`)."""
    if LOGIN_GUARD not in settings.AUTHENTICATION_BACKENDS:
        return
    http_request = guard.plain_request(request)
    names = {spelling(name): name for name in (user.get_username(), getattr(http_request, NAME_ATTRIBUTE, ""))}
    for name in names.values():
        run(guard.resetting(*guard.both_keys_of(http_request, name)))
    if hasattr(http_request, REFUSAL_ATTRIBUTE):
        delattr(http_request, REFUSAL_ATTRIBUTE)


user_login_failed.connect(count_failure, dispatch_uid="resty_django.limits.login.failed")
user_logged_in.connect(reset_count, dispatch_uid="resty_django.limits.login.logged_in")
