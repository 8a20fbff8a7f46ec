"""Check compiled Lua 5.1 code before it runs."""

from __future__ import annotations

import sys
from struct import calcsize, unpack_from

MAX_NAMED = 2
"""The maximum number of named parameters of a function with `...`.

Lua 5.1 reserves stack space for a function's registers, but not for its named parameters, which it moves if the
function has `...` (CVE-2014-5461). It may then write past the end, into a spare area of a few slots. Two parameters
always fit.
"""


def vararg_line(dump: bytes) -> int | None:
    """Return the line of the first function with `...` and more than MAX_NAMED named parameters, or None.

    `dump` is the output of string.dump on this machine.
    """
    return _Reader(dump).function()


class _Reader:
    def __init__(self, dump: bytes) -> None:
        self._dump = dump
        self._at = 12  # after the header
        self._order = "<" if sys.byteorder == "little" else ">"
        self._size = dump[8]
        if dump[:5] != b"\x1bLuaQ" or dump[7] != 4 or self._size != calcsize("N") or dump[9] != 4:
            raise ValueError("The data is not Lua 5.1 bytecode for this machine.")

    def function(self) -> int | None:
        self._skip_text()
        line = self._int()
        self._int()
        _, named, vararg, _ = self._dump[self._at : self._at + 4]
        self._at += 4
        if vararg & 2 and named > MAX_NAMED:
            return line
        self._skip_list()
        for _ in range(self._int()):
            self._skip_constant()
        for _ in range(self._int()):
            inner = self.function()
            if inner is not None:
                return inner
        self._skip_list()
        for _ in range(self._int()):
            self._skip_text()
            self._at += 8
        for _ in range(self._int()):
            self._skip_text()
        return None

    def _skip_list(self) -> None:
        """Skip instructions or line numbers, which have 4 bytes each."""
        count = self._int()
        self._at += 4 * count

    def _int(self) -> int:
        (value,) = unpack_from(self._order + "i", self._dump, self._at)
        self._at += 4
        return int(value)

    def _skip_text(self) -> None:
        (length,) = unpack_from(self._order + ("Q" if self._size == 8 else "I"), self._dump, self._at)
        self._at += self._size + int(length)

    def _skip_constant(self) -> None:
        kind = self._dump[self._at]
        self._at += 1
        if kind == 4:
            self._skip_text()
        else:
            self._at += {0: 0, 1: 1, 3: 8}[kind]
