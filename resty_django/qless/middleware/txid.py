"""The transaction ID: a job runs under the ID of the code that put it. Always active, outermost."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from resty_django.txid import InvalidTxid, bound


def transaction(job: Any) -> Generator[None, None, None]:
    """Bind the txid of the job; one without a valid txid gets a new one."""
    with bound_to(job):
        yield


@contextmanager
def bound_to(job: Any) -> Iterator[None]:
    """Run a block with the txid of the job; with a new one if the job has no valid txid."""
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
