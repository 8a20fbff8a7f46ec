"""Health probe for shared dictionaries."""

from __future__ import annotations

from collections.abc import Iterator

from django.template.defaultfilters import filesizeformat

from resty_django.health import Finding

from .base import DictStats
from .facts import facts


def probe() -> Iterator[Finding]:
    """Yield, for each shared dictionary, whether it can be used and how full it is.

    Evictions are normal in a dictionary used as a cache and cause no warning. In the dictionary `default` they do,
    because a lock or a counter may have been evicted.
    """
    for state in facts():
        subject, error = f"dictionary {state.name}", state.error
        try:
            faults = state.dictionary.faults() if state.dictionary else []
            warnings = state.dictionary.warnings() if state.dictionary else []
        except Exception as fault:
            error = fault
        if error or state.stats is None:
            yield Finding("error", subject, f"The dictionary cannot be used: {type(error).__name__}: {error}")
            continue
        if faults:
            yield Finding("error", subject, " ".join(faults))
            continue
        text = f"It responded in {state.seconds * 1000:.1f} ms; {_room(state.stats)}."
        if state.name == "default" and state.stats.forcible:
            warnings.append(
                "Locks or counters may have been lost. Raise SIZE, or use a separate dictionary for caches."
            )
        yield Finding("warning" if warnings else "ok", subject, " ".join((text, *warnings)))


def _room(stats: DictStats) -> str:
    """Describe the content and free space of a dictionary, as far as known."""
    parts = [] if stats.keys is None else [f"{stats.keys:,} keys"]
    free = filesizeformat(stats.free_space)
    parts.append(f"{free} of {filesizeformat(stats.capacity)} free" if stats.capacity else f"{free} free")
    if stats.forcible:
        parts.append(f"{stats.forcible:,} items were evicted before they expired, since its creation")
    return ", ".join(parts).replace("\N{NO-BREAK SPACE}", " ")
