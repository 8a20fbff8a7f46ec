"""One txid for each run of `manage.py`.

It is made when it is first asked for, outside of any request, job or block. Whether the process is a run of a command
shows the name of its program: `TXID["COMMANDS"]`. Processes that serve a site have none, and so no log line of theirs
gets the txid of something else.
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
    """Return the txid of this run of a program; children of a fork have the same. None: it is not a command.

    Kept until a setting changes, since each log line asks. Raises `ImproperlyConfigured`.
    """
    if not any(program == command or program.endswith(f"/{command}") for command in conf.txid.commands):
        return None
    return _made.get(program) or _made.setdefault(program, txid())


on_change(run_txid.cache_clear, SETTING)
