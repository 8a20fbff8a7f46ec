"""Erasure of a key from limits: from their states, and from the lists of the most refused keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from resty_django.conf import conf
from resty_django.erasing import Erased
from resty_django.shdict import SharedDict, shdicts

from .enforcement.client_address import parse_address
from .enforcement.keys import plain
from .enforcement.settings import request_settings
from .statistics.reporter import OWN, stats

KEPT: Final = (
    "Limits that each process counts locally while their store is down (on_error local): they end with their window.",
    "Limits in other dictionaries than the one in the settings: name the dictionaries with --dictionary.",
    "Keys that a custom key function returns: pass the returned string to resty_forget.",
)


def erase(key: str, dry: bool, dictionaries: Sequence[str] = ()) -> Iterator[Erased]:
    """Erase a key in every form that limits store; `dry`: only count. Raise `SharedDictError`."""
    forms = forms_of(key)
    names = dict.fromkeys((conf.limits.store, *dictionaries))
    yield Erased("states of limits", sum(_states(shdicts[name], forms, dry) for name in names))
    yield Erased("entries in the lists of the most refused keys", stats.forget(lambda listed: has(listed, forms), dry))


def forms_of(key: str) -> frozenset[str]:
    """Return the forms in which a key may be stored: unchanged, as a hash, and an IPv6 address as its network."""
    address = parse_address(key)
    return frozenset({key, plain(key), *([request_settings().clients.name_of(address)] if address is not None else [])})


def has(text: str, forms: frozenset[str]) -> bool:
    """Return whether a key of a limit, with or without its prefix, contains one of the forms as a part."""
    first, *others = text.split("|")
    return any(segment in forms for segment in others) or any(
        first == form or first.endswith(f":{form}") for form in forms
    )


def _states(dictionary: SharedDict, forms: frozenset[str], dry: bool) -> int:
    names = [name for name in dictionary.get_keys(0) if not name.startswith(OWN) and has(name, forms)]
    return len(names) if dry else sum(dictionary.delete(name) for name in names)
