"""Settings for transaction IDs: `RESTY_DJANGO["TXID"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TxidSettings:
    """Settings for transaction IDs.

    `header`: name of the header that carries the txid of a request and its response. `proxies`: CIDR blocks of callers
    whose txids are accepted, "unix" for callers over a Unix socket (empty: no caller is trusted). `traceparent`:
    whether to read and send W3C Trace Context headers. `commands`: path endings of the programs whose runs each get one
    txid.
    """

    header: str = setting("X-Request-Id", check=validators.header)
    proxies: tuple[str, ...] = setting((), check=validators.networks_or_unix)
    traceparent: bool = setting(True)
    commands: tuple[str, ...] = setting(
        ("manage.py", "django-admin", "django/__main__.py"), check=validators.no_empty_texts
    )
