"""One txid for each run of `manage.py`.

It is created on first use outside of any request, job or `bound` block. The program name decides whether the process
is a command: see `TXID["COMMANDS"]`. Server processes have no such txid, so their log lines never carry an unrelated
one.
"""

from __future__ import annotations

import functools
from typing import Final

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING

from .generator import txid

_made: Final[dict[str, str]] = {}


@functools.lru_cache(maxsize=16)
def run_txid(program: str) -> str | None:
    """Return the txid of this run, shared with forked children; None if the program is not a command.

    The result is kept until a setting changes, because each log line needs it. Raise `ImproperlyConfigured`.
    """
    if not any(program == command or program.endswith(f"/{command}") for command in conf.txid.commands):
        return None
    return _made.get(program) or _made.setdefault(program, txid())


on_change(run_txid.cache_clear, SETTING)
