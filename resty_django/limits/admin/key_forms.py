"""The forms in which limits, bans and quotas store a key that somebody searches for."""

from __future__ import annotations

from typing import Final

from ..enforcement.client_address import parse_address
from ..enforcement.keys import plain
from ..enforcement.names import normalized
from ..enforcement.settings import request_settings

PREFIXES: Final = ("ip:", "user:")
"""The prefixes of keys such as `user|ip`, which a search adds."""


def forms_of(key: str) -> frozenset[str]:
    """Return the forms in which a key may be stored: unchanged, as a hash, as a name, an address as its network."""
    address = parse_address(key)
    forms = {key, plain(key), normalized(key) or key}
    return frozenset(forms if address is None else {*forms, request_settings().clients.name_of(address)})


def stored_forms(key: str) -> list[str]:
    """Return the forms of a key, itself first: as a hash, an address as its network, each also with the prefixes."""
    forms = sorted(forms_of(key))
    return list(dict.fromkeys([key, *forms, *(prefix + form for prefix in PREFIXES for form in forms)]))


def has(text: str, forms: frozenset[str]) -> bool:
    """Return whether a key of a limit, with or without its prefix, contains one of the forms as a part."""
    first, *others = text.split("|")
    return any(segment in forms for segment in others) or any(
        first == form or first.endswith(f":{form}") for form in forms
    )
