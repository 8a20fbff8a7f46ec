"""Names of users as keys, so that spellings of a name are counted together. Pure."""

from __future__ import annotations

import unicodedata
from typing import Final

from .keys import plain

LOGIN_BANS: Final = {"address_and_name": "login-address-and-name", "address": "login-address", "name": "login-name"}
"""The names of the login guard's bans, by setting, in the order of their checks."""
LONGEST_NAME: Final = 1000
"""The number of characters of a name that are read, to bound the work for hostile names."""


def normalized(name: str) -> str:
    """Return a name without differences in case, Unicode compatibility forms and surrounding spaces.

    It is short: a long name is replaced by a hash. Return "" for a blank name.
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name[:LONGEST_NAME]).casefold()).strip()
    return plain(text) if text else ""
