"""The core: the only Lua script that changes the data of the jobs, put together from the files in this folder.

    source("ql:")  # the text, for EVAL and SCRIPT LOAD of a client in any language

docs/qless/core.md describes its commands. Pure: neither Django nor a client of Redis.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

SCRIPT_FILES: Final = (
    *("prologue", "common", "history", "later", "helpers_lazy", "put", "statistics", "throughput", "complete", "fail"),
    *("job_json", "pop", "transfer_lock", "cancel", "jobs", "track", "failures", "queues", "workers", "alive"),
    *("recur", "epilogue"),
)
"""The Lua files in their order. The most frequent commands come first: a call creates the functions of all files before
that of its command."""

PREFIX: Final = "ql:"
"""The default beginning of all keys, which other clients of qless expect."""

_FIRST_LINE: Final = f"local prefix = '{PREFIX}'\n"
_FOLDER: Final = Path(__file__).parent


@cache
def source(prefix: str = PREFIX) -> str:
    """Return the text of the core for keys that begin with `prefix`.

    With a hash tag, such as `{jobs}ql:`, all keys are in one slot of a cluster, and the prefix may be given to EVALSHA
    as its one key. Raises `ValueError` for a prefix that is empty or has other than letters, digits and `_.:{}-`.
    """
    if not re.fullmatch(r"[\w.:{}-]+", prefix, re.ASCII):
        raise ValueError(f"The prefix {prefix!r} is not made of letters, digits and _.:{{}}- alone.")
    text = "\n".join((_FOLDER / f"{name}.lua").read_text() for name in SCRIPT_FILES)
    if not text.startswith(_FIRST_LINE):
        raise AssertionError(f"prologue.lua does not begin with {_FIRST_LINE!r}.")
    return f"local prefix = '{prefix}'\n" + text.removeprefix(_FIRST_LINE)


def sha1(prefix: str = PREFIX) -> str:
    """Return the SHA-1 of the text, as EVALSHA expects it. Raises as `source`."""
    return hashlib.sha1(source(prefix).encode(), usedforsecurity=False).hexdigest()


__all__ = ["PREFIX", "SCRIPT_FILES", "sha1", "source"]
