"""The user of a request, also outside of views of Django REST framework, which authenticate inside the view."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpRequest

from resty_django.callables import call


def user_of(request: Any, reader: str = "") -> Any:
    """Return the user of a request, who may be anonymous; None if the request has no user.

    If the request's URL leads to such a view, its authentication classes are asked first, once per request; the view
    asks them again. `reader`: what needs the user, for the error message. With a reader, raise
    `ImproperlyConfigured` if nothing sets `request.user`.
    """
    asks_view = _authenticates(request)
    user = _user_of_view(request) if asks_view else None
    if user is None:
        user = getattr(request, "user", None)
    if user is None and reader and not asks_view and not hasattr(request, "user"):
        raise ImproperlyConfigured(
            f"{reader} needs request.user. Add django.contrib.auth.middleware.AuthenticationMiddleware to MIDDLEWARE."
        )
    return user


async def load_user(request: HttpRequest) -> None:
    """Load the user without blocking the event loop, so that `user_of` needs no query."""
    if hasattr(request, "auser"):
        request.user = await request.auser()
    if _authenticates(request):
        await sync_to_async(_user_of_view)(request)


def _authenticates(request: object) -> bool:
    """Return whether the request, as Django made it, is for a view of Django REST framework."""
    if not isinstance(request, HttpRequest):  # a view's request, whose attributes take long to read
        return False
    view = getattr(getattr(request, "resolver_match", None), "func", None)
    return hasattr(getattr(view, "cls", None), "get_authenticators")


def _user_of_view(request: Any) -> Any:
    """Return the user that the authentication classes of the view return; None if they return none or refuse."""
    if not hasattr(request, "_resty_user"):
        request._resty_user = _authenticated(request)
    return request._resty_user


def _authenticated(request: Any) -> Any:
    from rest_framework.exceptions import APIException
    from rest_framework.request import Request

    match = request.resolver_match
    view = match.func.cls(**match.func.initkwargs)
    view.setup(request, *match.args, **match.kwargs)
    view.action_map = getattr(match.func, "actions", {})
    context = view.get_parser_context(request)
    wrapped: Any = Request(request, (), view.get_authenticators(), parser_context=context)  # the body is for the view
    results = (call(authenticator.authenticate, wrapped) for authenticator in wrapped.authenticators)
    try:
        return next((result[0] for result in results if result is not None), None)
    except (APIException, PermissionDenied, Http404):  # the view answers it
        return None
