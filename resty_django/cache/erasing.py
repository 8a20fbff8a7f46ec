"""Erases one key from the lists of the slowest keys of caches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from resty_django.erasing import Erased
from resty_django.sansio import run

from .inventory import all_caches

KEPT: Final = (
    "Values and pages in caches: they end with their time to live, or by delete() and purge() of the cache.",
    "Keys of caches longer than 200 characters, which the lists have cut.",
)


def erase(key: str, dry: bool, dictionaries: Sequence[str] = ()) -> Iterator[Erased]:
    """Erase the slowest keys that have the key as a word. Raises `SharedDictError`."""
    word = re.compile(rf"(?<![\w.]){re.escape(key)}(?![\w.])")

    def matches(listed: str) -> bool:
        return word.search(listed) is not None

    counters = [info.counter for info in all_caches().values() if info.counter is not None]
    count = sum(run(counter.forget(matches, dry)) for counter in counters)
    yield Erased("entries in the lists of the slowest keys", count)
