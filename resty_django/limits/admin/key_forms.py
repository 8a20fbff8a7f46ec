"""The forms in which limits, bans and quotas store a key that somebody searches for."""

from __future__ import annotations

from typing import Final

from ..erasing import forms_of

PREFIXES: Final = ("ip:", "user:")
"""The prefixes of keys such as `user|ip`, which a search adds."""


def stored_forms(key: str) -> list[str]:
    """Return the forms of a key, itself first: as a hash, an address as its network, each also with the prefixes."""
    forms = sorted(forms_of(key))
    return list(dict.fromkeys([key, *forms, *(prefix + form for prefix in PREFIXES for form in forms)]))
