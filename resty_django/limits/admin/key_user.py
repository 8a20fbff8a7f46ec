"""The user whose ID or name is searched for as a key: limits count users by ID, log-ins by name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib.auth import get_permission_codename, get_user_model
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from resty_django.text import printable

from ..enforcement.names import normalized

LONGEST_NAME: Final = 150


@dataclass(frozen=True, slots=True)
class KeyUser:
    """A user. `by_id`: the query that finds its keys in limits; `by_name`: its log-ins; "" if this is the search."""

    pk: str
    name: str
    by_id: str
    by_name: str


def user_of(request: HttpRequest, key: str) -> KeyUser | None:
    """Return the user with this ID or name, or None; also None if the request's user may not view users."""
    model = get_user_model()
    codename = get_permission_codename("view", model._meta)
    if not key or "\x00" in key or not request.user.has_perm(f"{model._meta.app_label}.{codename}"):
        return None
    user = _find(model._default_manager.all(), model.USERNAME_FIELD, key)
    if user is None:
        return None
    pk, name = str(user.pk), str(user.get_username())
    return KeyUser(
        printable(pk, LONGEST_NAME),
        printable(name, LONGEST_NAME),
        "" if key.removeprefix("user:") == pk else urlencode({"key": pk}),
        "" if normalized(key) == normalized(name) else urlencode({"key": name}),
    )


def _find(users: Any, name_field: str, key: str) -> Any:
    with suppress(ValueError, TypeError, ValidationError, OverflowError):  # no ID
        user = users.filter(pk=key.removeprefix("user:")).first()
        if user is not None:
            return user
    with suppress(ValueError):  # a text that the database does not store
        return users.filter(**{name_field: key}).first()
    return None
