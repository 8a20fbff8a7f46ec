"""Names of users as keys, so that spellings of a name are counted together. Pure."""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from typing import Final

from .keys import plain

LOGIN_GUARD: Final = "resty_django.limits.login.LoginGuard"
"""The path of the login guard in AUTHENTICATION_BACKENDS."""
LOGIN_BANS: Final = {"address_and_name": "login-address-and-name", "address": "login-address", "name": "login-name"}
"""The names of the login guard's bans, by setting, in the order of their checks."""
MAX_NAME_CHARACTERS: Final = 1000
"""The number of characters of a name that are read, to bound the work for hostile names."""


def spelling(name: str) -> str:
    """Return a name as a part of a key, without differences in case, compatibility forms and surrounding spaces.

    It is short: a long name is replaced by a hash. Return "" for a blank name.
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name[:MAX_NAME_CHARACTERS]).casefold()).strip()
    return plain(text) if text else ""


def normalized(name: str) -> str:
    """Return `spelling` also without the differences that collations of databases ignore, such as accents.

    The query of a log-in finds the user by any of these spellings, and which ones depends on the database. So this
    follows the default collations of MariaDB and MySQL, and more: letters lose their marks, digits and kana their
    forms, and characters outside of ASCII other than letters and digits are left out, and those outside of the BMP.
    """
    letters = map(_base, unicodedata.normalize("NFKD", name[:MAX_NAME_CHARACTERS])[:MAX_NAME_CHARACTERS])
    bases = str.maketrans({"æ": "ae", "œ": "oe", "ð": "d", "ß": "s"})
    text = unicodedata.normalize("NFKC", "".join(letters).lower().translate(bases).casefold()).strip()
    return plain(text or "\ufffd") if name[:MAX_NAME_CHARACTERS].strip() else ""


def _base(char: str) -> str:
    """Return the letter or digit of a decomposed character without marks; "" for one that is left out."""
    if char.isascii():
        return char if char.isprintable() else ""
    additions = (  # to the Unicode name of the base letter, for letters that do not decompose
        r"\b(?:NEGATIVE|CROSSED|DOUBLE|CIRCLED|SQUARED|DOTLESS|INSULAR|FINAL) |\bCOMBINING (?=LATIN|CYRILLIC)"
        r"|(?<=ANA LETTER )SMALL | WITH .*"
    )
    with suppress(KeyError, ValueError):
        char = unicodedata.lookup(re.sub(additions, "", unicodedata.name(char).replace("KATAKANA", "HIRAGANA")))
    category = unicodedata.category(char)
    if category[0] == "N" and (number := unicodedata.numeric(char, 0.5)).is_integer():
        return str(int(number))
    return char if char.isalnum() and category != "Lm" and char < "\U00010000" else ""


def counted_key(ban: str, key: str) -> str:
    """Return a key of the bans with this name, with the names of users as the login guard counts them."""
    if ban == LOGIN_BANS["name"]:
        return normalized(key)
    if ban == LOGIN_BANS["address_and_name"]:
        address, bar, name = key.partition("|")
        return f"{address}{bar}{normalized(name)}"
    return key
