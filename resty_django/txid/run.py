"""One txid for each run of `manage.py`.

It is made when it is first asked for, outside of any request, job or block. Whether the process is a run of a command
tells the name of its program: `TXID["COMMANDS"]`. Processes that serve a site have none, and so no log line of theirs
gets the txid of something else.
"""

from __future__ import annotations

import functools
import sys
from typing import Final

from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import conf

from .make import txid

_made: Final[dict[str, str]] = {}


def run_txid() -> str | None:
    """The txid of this run; children of a fork have the same. None where the process is not a run of a command.

    Never raises, since each log line asks: without right settings it gives None.
    """
    program = sys.argv[0] if sys.argv else ""
    try:
        commands = conf.txid.commands
    except ImproperlyConfigured:
        return None
    if not _is_command(program, commands):
        return None
    return _made.get(program) or _made.setdefault(program, txid())


@functools.lru_cache(maxsize=16)
def _is_command(program: str, commands: tuple[str, ...]) -> bool:
    return any(program == each or program.endswith(f"/{each}") for each in commands)
