"""The forms in which limits, bans and quotas store a key that somebody searches for, and the user that it names.

Limits count users by ID, log-ins by name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_permission_codename, get_user_model
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from resty_django.text import printable

from ..callers import request_settings
from ..callers.client_address import parse_address
from ..callers.keys import plain
from ..callers.names import normalized
from .columns import MAX_SHOWN_CHARACTERS


def forms_of(key: str) -> frozenset[str]:
    """Return the forms in which a key may be stored: unchanged, as a hash, as a name, an address as its network."""
    address = parse_address(key)
    forms = {key, plain(key), normalized(key) or key}
    return frozenset(forms if address is None else {*forms, request_settings.current().clients.name_of(address)})


def stored_forms(key: str) -> list[str]:
    """Return the forms of a key, itself first: as a hash, an address as its network, each also as keys `user|ip` do."""
    forms = sorted(forms_of(key))
    return list(dict.fromkeys([key, *forms, *(f"{prefix}:{form}" for prefix in ("ip", "user") for form in forms)]))


def has(text: str, forms: frozenset[str]) -> bool:
    """Return whether a key of a limit, with or without its prefix, contains one of the forms as a part."""
    first, *others = text.split("|")
    return any(segment in forms for segment in others) or any(
        first == form or first.endswith(f":{form}") for form in forms
    )


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
        printable(pk, MAX_SHOWN_CHARACTERS),
        printable(name, MAX_SHOWN_CHARACTERS),
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
