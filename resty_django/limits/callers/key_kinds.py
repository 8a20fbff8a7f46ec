"""Keys of code outside of requests that identify a user or an address, for overrides of users and addresses.

Only the code that passes a key knows whether it is a user or an address: a text that looks like one may come from an
attacker. So such overrides apply if the option `key_kind` says what the keys are, and else only overrides of keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from resty_django.text.suggestions import did_you_mean

from . import request_settings
from .client_address import parse_address
from .keys import MISSING, hashed, plain

ROLES: Final[Mapping[str, tuple[str, ...]]] = {"user": ("user",), "address": ("ip",)}
"""The roles of keys of each kind, see `resty_django.limits.callers.keys.RequestKey`."""


def roles_of(key_kind: str | None, title: str) -> tuple[str, ...]:
    """Return the roles of keys of a kind. `title`: the limit in error messages. Raise `ValueError` for other kinds."""
    if key_kind is None:
        return ()
    if key_kind not in ROLES:
        hint = did_you_mean(str(key_kind), ROLES, 'Use "user" or "address".', quote='"')
        raise ValueError(f"key_kind of {title} must not be {key_kind!r}. {hint}")
    return ROLES[key_kind]


def stored_key(key: object, key_kind: str | None) -> str:
    """Return a key in the form in which limits of requests store it: a user's ID, or an address or its IPv6 network.

    A text that is not an address is replaced by a hash. Keys without a kind are unchanged.
    """
    if key_kind is None:
        return str(key)
    if key_kind == "user":
        return plain(key)
    text = str(key)
    name = request_settings.current().clients.name_of(parse_address(text.partition("/")[0]))
    if name and ("/" not in text or text == name):
        return name
    return hashed(text) if text else MISSING
