"""Erasure of a key from limits: from their states, and from the lists of the keys refused most."""

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
    "Limits that a process counts by itself while their store is down (on_error local): they end with their window.",
    "Limits whose store is another dictionary than that of the settings: name it with --dictionary.",
    "Texts that a key of your own function makes of a request: give resty_forget the text itself.",
)


def erase(key: str, dry: bool, dictionaries: Sequence[str] = ()) -> Iterator[Erased]:
    """Erase a key in every form that limits store. Raises `SharedDictError`."""
    forms = forms_of(key)
    names = dict.fromkeys((conf.limits.store, *dictionaries))
    yield Erased("states of limits", sum(_states(shdicts[name], forms, dry) for name in names))
    yield Erased("entries in the lists of the keys refused most", stats.forget(lambda listed: has(listed, forms), dry))


def forms_of(key: str) -> frozenset[str]:
    """Return the forms in which a key may be stored: as it is, an IPv6 address as its network, and as a hash."""
    address = parse_address(key)
    return frozenset({key, plain(key), *([request_settings().clients.name_of(address)] if address is not None else [])})


def has(text: str, forms: frozenset[str]) -> bool:
    """Whether a key of a limit, with or without its prefix, contains one of the forms as a part."""
    first, *others = text.split("|")
    return any(segment in forms for segment in others) or any(
        first == form or first.endswith(f":{form}") for form in forms
    )


def _states(dictionary: SharedDict, forms: frozenset[str], dry: bool) -> int:
    names = [name for name in dictionary.get_keys(0) if not name.startswith(OWN) and has(name, forms)]
    return len(names) if dry else sum(dictionary.delete(name) for name in names)
