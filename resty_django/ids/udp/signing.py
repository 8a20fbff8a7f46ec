"""Signed datagrams: a JSON object, and directly after its closing brace 64 lower-case hex digits.

The digits are HMAC-SHA256 over every byte before them. A signed request also holds `time` (epoch seconds) and
`nonce` (at least 16 random characters), so that the server recognises a copy of it. Server and client share
this module; it needs nothing but the standard library.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

SIGNATURE_LENGTH = 64
MIN_NONCE = 16
"""Characters of a nonce at least."""


def sign(data: bytes, key: bytes) -> bytes:
    """Return `data` with its signature behind it."""
    return data + _digits(data, key)


def verify(datagram: bytes, keys: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return what was signed and the key that fits; None when no key does, or there is nothing but a signature."""
    body, signature = datagram[:-SIGNATURE_LENGTH], datagram[-SIGNATURE_LENGTH:]
    if not body:
        return None
    for key in keys:
        if hmac.compare_digest(signature, _digits(body, key)):
            return body, key
    return None


def _digits(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, data, "sha256").hex().encode()
