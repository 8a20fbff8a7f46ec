"""What `manage.py resty_check` says of the caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from resty_django import health
from resty_django.events.steps import run
from resty_django.health import Finding
from resty_django.shdict import SharedDict

from .channel import to_poll
from .counts import summed
from .known import Known, known
from .over_events import EventChannel
from .store import Store

MINUTES: Final = 10
"""Callbacks that failed are reported for so long."""
TIMEOUT: Final = 0.3
"""Seconds for which an event that is missing is waited for."""
PROBED: Final = "mlcache:probe"


def register() -> None:
    """Register the probe `cache`."""
    health.register("cache", probe)


def probe() -> Iterator[Finding]:
    """Caches that cannot be made, dictionaries and channels that do not answer, and callbacks that failed anywhere."""
    whole = 0
    everything = known()
    for one in everything.values():
        found = list(_of(one))
        yield from found
        whole += not found
    channels = list(_channels(everything))
    yield from channels
    if whole == len(everything) and not channels:
        yield Finding("ok", "cache", f"{_caches(whole)} can be used; no callback failed in the last {MINUTES} minutes.")


def _of(one: Known) -> Iterator[Finding]:
    subject = f"cache {one.name}"
    if one.counter is None:
        yield Finding("error", subject, f"It cannot be made: {one.error}")
        return
    for dictionary in dict.fromkeys([one.counter.dictionary, *_dictionaries(one)]):
        try:
            dictionary.get(PROBED)
        except Exception as error:
            yield Finding("error", subject, f"Its dictionary {dictionary.name} does not answer: {error}")
            return
    recent = summed(run(one.counter.history()).minutes[-MINUTES:])
    if recent.callback_errors:
        yield Finding(
            "warning",
            subject,
            f"In the last {MINUTES} minutes {recent.callback_errors:,} of {recent.callbacks:,} callbacks failed.",
        )


def _dictionaries(one: Known) -> list[SharedDict]:
    if isinstance(one.cache, Store):
        return [one.cache.shm]
    return [] if one.cache is None else [*one.cache.dictionaries, one.cache.locks]


def _channels(everything: dict[str, Known]) -> Iterator[Finding]:
    """One look at each channel, which brings this process up to date; those over events are one."""
    asked: set[object] = set()
    for one in everything.values():
        channel = None if one.cache is None else one.cache.channel
        which = EventChannel if isinstance(channel, EventChannel) else id(channel)
        if not hasattr(channel, "poll") or which in asked:
            continue
        asked.add(which)
        try:
            run(to_poll(channel, TIMEOUT))
        except Exception as error:
            yield Finding(
                "error", f"channel of {one.name}", f"What other processes tell to forget cannot be heard: {error}"
            )


def _caches(count: int) -> str:
    return "1 cache" if count == 1 else f"{count} caches"


__all__ = ["probe", "register"]
