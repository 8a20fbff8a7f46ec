"""The core: the only Lua script that changes job data, assembled from the files in this folder.

    source("ql:")  # the script text, for EVAL and SCRIPT LOAD in any language

docs/reference/jobs/core.md describes its commands. Pure: needs neither Django nor a Redis client.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

SCRIPT_FILES: Final = (
    *("prologue", "common", "history", "figures", "later", "helpers_lazy", "outcomes", "put", "statistics", "complete"),
    *("fail", "job_json", "pop", "transfer_lock", "cancel", "jobs", "track", "failures", "queues", "workers", "alive"),
    *("reports", "recur", "groups", "index", "epilogue"),
)
"""The Lua files in order. The most frequent commands come first: a call creates the functions of all files up to its
command's file."""

PREFIX: Final = "ql:"
"""The default prefix of all keys, which other qless clients expect."""

_FIRST_LINE: Final = f"local prefix = '{PREFIX}'\n"


@cache
def source(prefix: str = PREFIX) -> str:
    """Return the text of the core for keys that begin with `prefix`.

    With a hash tag, such as `{jobs}ql:`, all keys are in one slot of a cluster, and the prefix may be passed to EVALSHA
    as its only key. Raises `ValueError` for a prefix that is empty or contains characters other than letters, digits
    and `_.:{}-`.
    """
    if not re.fullmatch(r"[\w.:{}-]+", prefix, re.ASCII):
        raise ValueError(f"Invalid prefix {prefix!r}. Use only letters, digits and _.:{{}}- in it.")
    folder = Path(__file__).parent
    text = "\n".join((folder / f"{name}.lua").read_text() for name in SCRIPT_FILES)
    if not text.startswith(_FIRST_LINE):
        raise AssertionError(f"prologue.lua does not begin with {_FIRST_LINE!r}.")
    return f"local prefix = '{prefix}'\n" + text.removeprefix(_FIRST_LINE)


def sha1(prefix: str = PREFIX) -> str:
    """Return the SHA-1 of the text, as EVALSHA expects it. Raises `ValueError` like `source`."""
    return hashlib.sha1(source(prefix).encode(), usedforsecurity=False).hexdigest()


__all__ = ["PREFIX", "SCRIPT_FILES", "sha1", "source"]
