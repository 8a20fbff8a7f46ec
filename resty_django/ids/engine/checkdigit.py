"""Check digits for the text that precedes them: `luhn`, `damm` and `mod97`.

Letters of either case count as the numbers 10 (A) to 35 (Z), as in ISIN and IBAN; other characters are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

_DIGITS = {char: str(int(char, 36)) for char in "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _digits(text: str) -> str:
    return text if text.isascii() and text.isdigit() else "".join(_DIGITS.get(char, "") for char in text)


def luhn(text: str) -> str:
    """Return the Luhn check digit of `text` (ISO/IEC 7812-1, annex B)."""
    digit_sums = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # of twice a digit
    digits = [int(char) for char in reversed(_digits(text))]
    total = sum(digits[1::2]) + sum(digit_sums[digit] for digit in digits[::2])
    return str(-total % 10)


def damm(text: str) -> str:
    """Return the Damm check digit of `text`."""
    # The totally anti-symmetric quasigroup of order 10 in H. Michael Damm's thesis (Marburg, 2004).
    quasigroup = (
        (0, 3, 1, 7, 5, 9, 8, 6, 4, 2),
        (7, 0, 9, 2, 1, 5, 4, 8, 6, 3),
        (4, 2, 0, 6, 8, 7, 1, 3, 5, 9),
        (1, 7, 5, 0, 9, 8, 3, 4, 2, 6),
        (6, 1, 2, 3, 0, 4, 5, 9, 7, 8),
        (3, 6, 7, 4, 2, 0, 9, 5, 8, 1),
        (5, 8, 6, 9, 7, 2, 0, 1, 3, 4),
        (8, 9, 4, 5, 3, 6, 2, 0, 1, 7),
        (9, 4, 3, 8, 6, 1, 7, 2, 0, 5),
        (2, 5, 8, 1, 4, 3, 6, 7, 9, 0),
    )
    state = 0
    for digit in _digits(text):
        state = quasigroup[state][int(digit)]
    return str(state)


def mod97(text: str) -> str:
    """Return the two check digits of ISO/IEC 7064 MOD 97-10 for `text`."""
    digits, remainder = _digits(text) + "00", 0
    for at in range(0, len(digits), 1000):  # in pieces, because Python limits the digits of `int`
        remainder = int(f"{remainder}{digits[at : at + 1000]}") % 97
    return f"{98 - remainder:02d}"


CHECKS: dict[str, Callable[[str], str]] = {"luhn": luhn, "damm": damm, "mod97": mod97}
WIDTHS = {"luhn": 1, "damm": 1, "mod97": 2}
