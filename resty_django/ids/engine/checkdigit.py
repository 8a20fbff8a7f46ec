"""Check digits for the text that precedes them: `luhn`, `damm` and `mod97`.

Letters of either case count as the numbers 10 (A) to 35 (Z), as in ISIN and IBAN; other characters are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

_DIGITS = {**{str(n): str(n) for n in range(10)}, **{chr(65 + n): str(10 + n) for n in range(26)}}
_DIGITS.update({letter.lower(): digits for letter, digits in list(_DIGITS.items())})

_CHUNK = 1000
"""Digits converted to a number at a time; Python limits their count."""
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
# The totally anti-symmetric quasigroup of order 10 in H. Michael Damm's thesis (Marburg, 2004).
_QUASIGROUP = tuple(
    tuple(map(int, row))
    for row in (
        "0317598642",
        "7092154863",
        "4206871359",
        "1750983426",
        "6123045978",
        "3674209581",
        "5869720134",
        "8945362017",
        "9438617205",
        "2581436790",
    )
)


def _digits(text: str) -> str:
    return text if text.isascii() and text.isdigit() else "".join(_DIGITS.get(c, "") for c in text)


def luhn(text: str) -> str:
    """Return the Luhn check digit of `text` (ISO/IEC 7812-1, annex B)."""
    digits = [int(c) for c in reversed(_digits(text))]
    total = sum(digits[1::2]) + sum(_DOUBLED[d] for d in digits[::2])
    return str(-total % 10)


def damm(text: str) -> str:
    """Return the Damm check digit of `text`."""
    state = 0
    for digit in _digits(text):
        state = _QUASIGROUP[state][int(digit)]
    return str(state)


def mod97(text: str) -> str:
    """Return the two check digits of ISO/IEC 7064 MOD 97-10 for `text`."""
    digits, remainder = _digits(text) + "00", 0
    for at in range(0, len(digits), _CHUNK):
        remainder = int(f"{remainder}{digits[at : at + _CHUNK]}") % 97
    return f"{98 - remainder:02d}"


CHECKS: dict[str, Callable[[str], str]] = {"luhn": luhn, "damm": damm, "mod97": mod97}
WIDTHS = {"luhn": 1, "damm": 1, "mod97": 2}
