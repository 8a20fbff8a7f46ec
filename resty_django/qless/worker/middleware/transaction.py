"""The txid of what put the job is the current one while it runs. Always there, outermost."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from resty_django.txid import InvalidTxid, bound


def transaction(job: Any) -> Generator[None, None, None]:
    """A job without one, or with one that is none, gets a new one."""
    try:
        around = bound(job.txid)
        around.__enter__()
    except InvalidTxid:
        around = bound()
        around.__enter__()
    try:
        yield
    finally:
        around.__exit__(None, None, None)


__all__ = ["transaction"]
