"""The settings of transaction ids: `RESTY_DJANGO["TXID"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TxidSettings:
    """Transaction ids.

    `header`: the header with the txid of a request and its response. `proxies`: the CIDR blocks of those whose ids are
    taken over, "unix" for callers over a Unix socket (none listed: from nobody). `traceparent`: W3C Trace Context, in
    and out. `commands`: ends of the paths of the programs whose runs have one txid each.
    """

    header: str = setting("X-Request-Id", check=validators.header)
    proxies: tuple[str, ...] = setting((), check=validators.networks_or_unix)
    traceparent: bool = setting(True)
    commands: tuple[str, ...] = setting(
        ("manage.py", "django-admin", "django/__main__.py"), check=validators.no_empty_texts
    )
