"""The health probe of the shared dictionaries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from django.template.defaultfilters import filesizeformat

from resty_django.health import Finding

from .base import Stats
from .handler import shdicts

KEEPS: Final = "default"
"""The dictionary whose items are not only cached: locks, counters and limits are in it unless a site says otherwise."""


def probe() -> Iterator[Finding]:
    """Yield whether each shared dictionary opens and answers, and how full it is.

    A dictionary that is full and throws out items is not a fault where it is a cache, so no warning is given.
    In the dictionary `default` it is a warning, since what was thrown out there may have been a lock or a counter.
    """
    for name in shdicts:
        subject = f"dictionary {name}"
        start = time.perf_counter()
        try:
            stats = shdicts[name].quick_stats()
            faults = shdicts[name].faults()
        except Exception as error:
            yield Finding("error", subject, f"It cannot be used: {type(error).__name__}: {error}")
            continue
        if faults:
            yield Finding("error", subject, " ".join(faults))
            continue
        text = f"It answers in {(time.perf_counter() - start) * 1000:.1f} ms; {_room(stats)}."
        if name == KEEPS and stats.forcible:
            text += " Locks, counters or limits may have been lost: raise its SIZE, or give caches one of their own."
        yield Finding("warning" if name == KEEPS and stats.forcible else "ok", subject, text)


def _room(stats: Stats) -> str:
    """Return what is in a dictionary and what is left of it, as far as it can tell."""
    parts = [] if stats.keys is None else [f"{stats.keys:,} keys"]
    free = filesizeformat(stats.free_space)
    parts.append(f"{free} of {filesizeformat(stats.capacity)} free" if stats.capacity else f"{free} free")
    if stats.forcible:
        parts.append(f"{stats.forcible:,} items were thrown out before their time since it was made")
    return ", ".join(parts).replace("\N{NO-BREAK SPACE}", " ")
