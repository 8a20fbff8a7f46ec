"""The transaction ID: a job runs under the ID of the code that put it. Always active, outermost."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from resty_django.txid import InvalidTxid, bound


def transaction(job: Any) -> Generator[None, None, None]:
    """Bind the txid of the job; one without a valid txid gets a new one."""
    try:
        binding = bound(job.txid)
        binding.__enter__()
    except InvalidTxid:
        binding = bound()
        binding.__enter__()
    try:
        yield
    finally:
        binding.__exit__(None, None, None)
