"""Signatures of what only this site may have written: HMAC-SHA256 under a key derived from `SECRET_KEY`."""

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


def sign(place: bytes, data: bytes) -> bytes:
    """The signature of the data at this place. Raises `ImproperlyConfigured` where the site has no `SECRET_KEY`."""
    return _signature(settings.SECRET_KEY, place, data)


def is_signed(signature: bytes, place: bytes, data: bytes) -> bool:
    """Whether it is the signature of the data at this place, under `SECRET_KEY` or one of `SECRET_KEY_FALLBACKS`."""
    return any(
        hmac.compare_digest(signature, _signature(secret, place, data))
        for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    )


def _signature(secret: str | bytes, place: bytes, data: bytes) -> bytes:
    # The length keeps the end of a place from counting as the beginning of the data.
    return hmac.digest(_key(secret), b"%d:%b%b" % (len(place), place, data), "sha256")


@lru_cache(maxsize=8)
def _key(secret: str | bytes) -> bytes:
    return hashlib.sha256(_SALT + force_bytes(secret)).digest()


__all__ = ["SIZE", "is_signed", "sign"]
