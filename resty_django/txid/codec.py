"""The txid format: 42 bits of time and 54 random bits, as 20 characters that sort by time. Pure.

The 96-bit number is `(ms mod 2^42) << 54 | random`. Four zero bits at its low end make it 20 digits in base 32. The
digits are in ASCII order, so IDs sort the same as text and as numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

ALPHABET: Final = "0123456789abcdefghijklmnopqrstuv"
LENGTH: Final = 20
MAX_TIME_MS: Final = (1 << 42) - 1
"""The last millisecond before the times wrap around, in 2109."""
MAX_RANDOM: Final = (1 << 54) - 1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CANONICAL: Final = re.compile("[0-9a-v]{19}[0g]")
_PAIRS: Final = [first + second for first in ALPHABET for second in ALPHABET]


class InvalidTxid(ValueError):
    """The value is not a txid; the message says why."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The contents of a txid: `ms` since 1970-01-01 UTC, 54 `random` bits, and the ID itself in lower case."""

    txid: str
    ms: int
    random: int

    @property
    def time(self) -> datetime:
        """The time of the ID, in UTC. It wraps around to 1970 after 15 May 2109."""
        return _EPOCH + timedelta(milliseconds=self.ms)

    @property
    def number(self) -> int:
        """All 96 bits."""
        return self.ms << 54 | self.random


def milliseconds(time: float | datetime) -> int:
    """Return whole milliseconds since 1970-01-01 UTC for a number of milliseconds or an aware datetime.

    Fractions are truncated toward zero. Raise `ValueError` for naive datetimes and for infinite or NaN numbers,
    `TypeError` for other types.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise ValueError(f"{time!r} has no time zone. Make it aware with django.utils.timezone.make_aware().")
        micros = (time - _EPOCH) // timedelta(microseconds=1)
        return micros // 1000 if micros >= 0 else -(-micros // 1000)
    if not isinstance(time, int | float):
        raise TypeError(f"A time must be a number of milliseconds or an aware datetime, not {type(time).__name__}.")
    try:
        return int(time)
    except (OverflowError, ValueError):
        raise ValueError(f"A time must be a finite number of milliseconds, not {time}.") from None


def prefix(ms: int) -> str:
    """Return the first 8 characters, which depend on the time only. IDs of the same 4 ms share them."""
    slot = ms >> 2
    return _PAIRS[slot >> 30 & 1023] + _PAIRS[slot >> 20 & 1023] + _PAIRS[slot >> 10 & 1023] + _PAIRS[slot & 1023]


def encode(ms: int, random: int) -> str:
    """Return the txid for a time and 54 random bits. `ms` is reduced modulo 2^42, even if negative."""
    if not 0 <= random <= MAX_RANDOM:
        raise ValueError(f"The random part must fit in 54 bits; {random} does not.")
    return from_number((ms & MAX_TIME_MS) << 54 | random)


def from_number(number: int) -> str:
    """Return the txid for a 96-bit number."""
    padded = number << 4
    return "".join([_PAIRS[padded >> shift & 1023] for shift in range(90, -1, -10)])


def parse(txid: str) -> Parsed:
    """Parse a txid in upper or lower case. Raise `InvalidTxid`, with a message that says what is wrong and where."""
    if not isinstance(txid, str) or not txid.isascii() or not _CANONICAL.fullmatch(canonical := txid.lower()):
        raise InvalidTxid(_fault(txid))
    bits = number(canonical)
    return Parsed(canonical, bits >> 54, bits & MAX_RANDOM)


def number(txid: str) -> int:
    """Return the 96-bit number of a valid txid."""
    return int(txid, 32) >> 4


def is_txid(value: object) -> bool:
    """Return whether the value is a txid in canonical form (lower case)."""
    return isinstance(value, str) and _CANONICAL.fullmatch(value) is not None


def txid_min(time: float | datetime) -> str:
    """Return the smallest txid of a millisecond, for queries by time. Arguments and errors as in `milliseconds`."""
    return encode(milliseconds(time), 0)


def txid_max(time: float | datetime) -> str:
    """Return the largest txid of a millisecond, for queries by time. Arguments and errors as in `milliseconds`."""
    return encode(milliseconds(time), MAX_RANDOM)


def _fault(value: object) -> str:
    if not isinstance(value, str):
        return f"A txid must be a str of {LENGTH} characters, not {type(value).__name__}."
    quoted = repr(value if len(value) <= 40 else value[:40] + "...")
    if len(value) != LENGTH:
        return f"A txid has {LENGTH} characters; {quoted} has {len(value)}."
    invalid = re.search("[^0-9a-vA-V]", value)
    if invalid:
        return f"A txid consists of 0-9 and a-v; character {invalid.start() + 1} of {quoted} is {invalid[0]!r}."
    return f"The last character of a txid must be 0 or g (it holds one bit), not {value[-1]!r} as in {quoted}."
