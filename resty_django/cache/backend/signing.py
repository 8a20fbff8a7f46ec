"""Signatures that prove which site wrote an entry: HMAC-SHA256 under a key derived from `SECRET_KEY`."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Final

from django.conf import settings
from django.utils.encoding import force_bytes

SIZE: Final = 32
"""Bytes of a signature."""
_SALT: Final = b"resty_django.cache.backend:"


def sign(context: bytes, data: bytes) -> bytes:
    """Return the signature of the data in this context. Raise `ImproperlyConfigured` where the site has no
    `SECRET_KEY`.
    """
    return _signature(settings.SECRET_KEY, context, data)


def is_signed(signature: bytes, context: bytes, data: bytes) -> bool:
    """Whether it is the signature of the data in this context, under `SECRET_KEY` or one of `SECRET_KEY_FALLBACKS`."""
    return any(
        hmac.compare_digest(signature, _signature(secret, context, data))
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    )


def _signature(secret: str | bytes, context: bytes, data: bytes) -> bytes:
    # The length keeps the end of a context from counting as the beginning of the data.
    return hmac.digest(_key(secret), b"%d:%b%b" % (len(context), context, data), "sha256")


@lru_cache(maxsize=8)
def _key(secret: str | bytes) -> bytes:
    return hashlib.sha256(_SALT + force_bytes(secret)).digest()
