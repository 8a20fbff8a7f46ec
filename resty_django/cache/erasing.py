"""Erases a key from the caches' lists of slowest keys and of invalidated tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from resty_django.erasing import Erased
from resty_django.sansio import run

from .inventory import all_caches

KEPT: Final = (
    "Values and pages in caches: they expire, or are deleted by the cache's delete() and purge().",
    "Cache keys longer than 200 characters, which the lists contain only in shortened form.",
)


def erase(key: str, dry: bool, dictionaries: Sequence[str] = ()) -> Iterator[Erased]:
    """Erase slowest keys and tags that contain the key as a word. Raise `SharedDictError`."""
    word = re.compile(rf"(?<![\w.]){re.escape(key)}(?![\w.])")

    def matches(listed: str) -> bool:
        return word.search(listed) is not None

    counters = [info.counter for info in all_caches().values() if info.counter is not None]
    count = sum(run(counter.forget(matches, dry)) for counter in counters)
    yield Erased("entries in the lists of the slowest keys and of invalidated tags", count)
