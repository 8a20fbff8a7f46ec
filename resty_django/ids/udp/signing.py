"""Signed datagrams: a JSON object, directly followed by 64 lower-case hex digits.

The digits are the HMAC-SHA256 of all bytes before them. A signed request also contains `time` (epoch seconds) and
`nonce` (at least 16 random characters), so that the server recognizes copies. Server and client share this module; it
requires only the standard library.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

SIGNATURE_LENGTH = 64


def sign(data: bytes, key: bytes) -> bytes:
    """Return `data` followed by its signature."""
    return data + _digits(data, key)


def verify(datagram: bytes, keys: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return the signed data and the matching key, or None if no key matches or the data is empty."""
    body, signature = datagram[:-SIGNATURE_LENGTH], datagram[-SIGNATURE_LENGTH:]
    if not body:
        return None
    for key in keys:
        if hmac.compare_digest(signature, _digits(body, key)):
            return body, key
    return None


def _digits(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, data, "sha256").hex().encode()
