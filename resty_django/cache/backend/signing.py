"""Signatures of entries: HMAC-SHA256 with a key derived from `SECRET_KEY`."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Final

from django.conf import settings
from django.utils.encoding import force_bytes

SIGNATURE_BYTES: Final = 32


def sign(context: bytes, data: bytes) -> bytes:
    """Return the signature of the data in this context. Raise `ImproperlyConfigured` if there is no `SECRET_KEY`."""
    return _signature(settings.SECRET_KEY, context, data)


def is_signed(signature: bytes, context: bytes, data: bytes) -> bool:
    """Return whether the signature is valid with `SECRET_KEY` or one of `SECRET_KEY_FALLBACKS`."""
    return any(
        hmac.compare_digest(signature, _signature(secret, context, data))
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    )


def _signature(secret: str | bytes, context: bytes, data: bytes) -> bytes:
    # The length separates the context from the data.
    return hmac.digest(_key(secret), b"%d:%b%b" % (len(context), context, data), "sha256")


@lru_cache(maxsize=8)
def _key(secret: str | bytes) -> bytes:
    return hashlib.sha256(b"resty_django.cache.backend:" + force_bytes(secret)).digest()
