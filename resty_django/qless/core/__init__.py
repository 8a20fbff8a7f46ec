"""The core: the one Lua script that changes the data of the jobs, put together from the files beside this one.

    source("ql:")  # the text, for EVAL and SCRIPT LOAD of a client in any language

docs/qless/core.md tells its commands. Pure: neither Django nor a client of Redis.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

PARTS: Final = (
    *("head", "base", "job", "seldom", "put", "measure", "passed", "complete", "fail", "show", "pop", "take"),
    *("cancel", "jobs", "track", "failures", "queues", "workers", "recur", "tail"),
)
"""The files in their order. What is asked for most comes early: a call makes the functions of all parts before it."""

PREFIX: Final = "ql:"
"""What all keys begin with, and what other clients of qless expect."""

_FIRST_LINE: Final = f"local prefix = '{PREFIX}'\n"
_HERE: Final = Path(__file__).parent


@cache
def source(prefix: str = PREFIX) -> str:
    """The text of the core for keys that begin with `prefix`.

    With a hash tag, such as `{jobs}ql:`, all keys are in one slot of a cluster, and the prefix may be given to EVALSHA
    as its one key. Raises `ValueError` for a prefix that is empty or has other than letters, digits and `_.:{}-`.
    """
    if not re.fullmatch(r"[\w.:{}-]+", prefix, re.ASCII):
        raise ValueError(f"prefix {prefix!r} is not made of letters, digits and _.:{{}}- alone")
    text = "\n".join((_HERE / f"{part}.lua").read_text() for part in PARTS)
    if not text.startswith(_FIRST_LINE):
        raise AssertionError(f"head.lua does not begin with {_FIRST_LINE!r}")
    return f"local prefix = '{prefix}'\n" + text.removeprefix(_FIRST_LINE)


def sha1(prefix: str = PREFIX) -> str:
    """What EVALSHA knows that text by. Raises as `source`."""
    return hashlib.sha1(source(prefix).encode(), usedforsecurity=False).hexdigest()


__all__ = ["PARTS", "PREFIX", "sha1", "source"]
