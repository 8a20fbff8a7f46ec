"""A keyed bijection on a range of integers, so that an ID does not reveal how many were issued before it.

A Feistel network over the smallest a x b rectangle that covers the range, applied repeatedly until the value is inside
the range (J. Black, P. Rogaway, "Ciphers with Arbitrary Finite Domains", 2002, section 5). It hides volume and order
from people who see IDs; it does not protect secrets.
"""

from __future__ import annotations

from hashlib import blake2b
from math import isqrt

_ROUNDS = 6


class Scrambler:
    """Maps the integers of `low`..`high` (inclusive) to the same range, one to one, and back.

    `key` is 16 to 64 secret bytes; a different key or range produces an unrelated mapping.
    """

    def __init__(self, low: int, high: int, key: bytes) -> None:
        if not 0 <= low <= high < 2**63 or not 16 <= len(key) <= 64:
            raise ValueError("A scrambler needs 0 <= low <= high < 2**63 and a key of 16 to 64 bytes.")
        self._low, self._size = low, high - low + 1
        self._a = isqrt(self._size - 1) + 1
        self._b = -(-self._size // self._a)
        bounds = low.to_bytes(8, "little") + self._size.to_bytes(8, "little")
        self._rounds = tuple(blake2b(digest_size=8, key=key, salt=bytes([i]), person=bounds) for i in range(_ROUNDS))

    def scramble(self, number: int) -> int:
        """Return the image of `number`. Raise ValueError if it is outside the range."""
        value = self._inside(number)
        while True:
            value = self._forward(value)
            if value < self._size:
                return value + self._low

    def unscramble(self, number: int) -> int:
        """Return the number whose image is `number`. Raise ValueError if it is outside the range."""
        value = self._inside(number)
        while True:
            value = self._backward(value)
            if value < self._size:
                return value + self._low

    def _inside(self, number: int) -> int:
        value = number - self._low
        if not 0 <= value < self._size:
            raise ValueError(f"{number} is not between {self._low} and {self._low + self._size - 1}.")
        return value

    def _mix(self, index: int, half: int) -> int:
        digest = self._rounds[index].copy()
        digest.update(half.to_bytes(16, "little"))
        return int.from_bytes(digest.digest(), "little")

    def _forward(self, value: int) -> int:
        low, high = value % self._a, value // self._a
        for index in range(0, _ROUNDS, 2):
            low = (low + self._mix(index, high)) % self._a
            high = (high + self._mix(index + 1, low)) % self._b
        return high * self._a + low

    def _backward(self, value: int) -> int:
        low, high = value % self._a, value // self._a
        for index in range(_ROUNDS - 2, -1, -2):
            high = (high - self._mix(index + 1, low)) % self._b
            low = (low - self._mix(index, high)) % self._a
        return high * self._a + low
