"""The stored log of outages and deploys: one item of a shared dictionary, written only when something changes.

Each process notes an outage that it sees when it begins, every 30 seconds, and when it ends; outages of one store that
overlap are one entry.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any, Final

import django
import msgspec

import resty_django
from resty_django.conf import conf
from resty_django.health import described
from resty_django.shdict import Change, Keep, shdicts
from resty_django.text import logger, one_line

log = logger("resty_django.timeline")

KEY: Final = "resty:timeline:1"
"""The key of the log; the number is the version of its format."""
MOST: Final = 300
"""Maximum number of outages and of deploys."""
NEAR: Final = 60.0
"""Seconds between two outages of one store that are one entry."""
LONGEST: Final = 300


class StoredOutage(msgspec.Struct, frozen=True):
    """An outage of a store, in epoch seconds. `until`: its end, or when it was last noted if it has not `ended`."""

    store: str
    at: float
    until: float
    error: str
    ended: bool = True

    def lasts(self, now: float) -> bool:
        """Return whether a process has noted it lately, and none its end."""
        return not self.ended and now - self.until <= NEAR


class StoredDeploy(msgspec.Struct, frozen=True):
    """The first start of a process of a version. `before`: the version until then."""

    at: float
    version: str
    process: str
    before: str = ""


class Log(msgspec.Struct, frozen=True):
    """All that is stored, the oldest first."""

    outages: tuple[StoredOutage, ...] = ()
    deploys: tuple[StoredDeploy, ...] = ()


def load() -> Log:
    """Return the stored log. Raise `SharedDictError`."""
    return _decoded(shdicts[conf.alerts.store].get(KEY))


def with_outage(stored: Log, outage: StoredOutage) -> Log:
    """Return the log with an outage, merged with other outages of the same store at the same time."""
    separate = []
    for previous in stored.outages:
        if previous.store == outage.store and previous.at - NEAR <= outage.until and outage.at - NEAR <= previous.until:
            first = min(previous, outage, key=lambda candidate: candidate.at)
            last = max(previous, outage, key=lambda candidate: (candidate.until, candidate.ended))
            outage = StoredOutage(outage.store, first.at, last.until, first.error, last.ended)
        else:
            separate.append(previous)
    outages = sorted([*separate, outage], key=lambda candidate: candidate.at)
    return Log(tuple(outages[-MOST:]), stored.deploys)


def with_deploy(stored: Log, version: str, process: str, now: float) -> Log:
    """Return the log with a deploy if the last deploy has another version; else the same log."""
    before = stored.deploys[-1].version if stored.deploys else ""
    if before == version:
        return stored
    return Log(stored.outages, (*stored.deploys, StoredDeploy(now, version, process, before))[-MOST:])


def record_outage(store: str, since: float, until: float, error: str, ended: bool) -> None:
    """Note an outage, which lasted until `until` or, if it has not `ended`, still lasted then (epoch seconds).

    It is lost if the log cannot be written.
    """
    outage = StoredOutage(one_line(store, LONGEST), since, until, one_line(error, LONGEST), ended)
    _write(lambda stored: with_outage(stored, outage))


def record_deploy(process: str) -> None:
    """Note the version of this process if it is new. `process`: what it is, such as `worker`."""
    version = site_version()
    _write(lambda stored: with_deploy(stored, version, process, time.time()))


def site_version() -> str:
    """Return the site's release if the settings have one, and the versions of this package, Django and Python."""
    versions = (
        f"resty_django {resty_django.__version__}, Django {django.get_version()}, Python {platform.python_version()}"
    )
    release = conf.qless.release
    return one_line(f"{release} ({versions})" if release else versions, LONGEST)


def _write(function: Callable[[Log], Log]) -> None:
    def update(stored: Any) -> Change | Keep:
        before = _decoded(stored)
        after = function(before)
        return Keep() if after is before else Change(msgspec.json.encode(after), 0)

    try:
        shdicts[conf.alerts.store].update(KEY, update)
    except Exception as error:  # it must not disturb what it accompanies
        log.warning("An outage or a deploy could not be noted: %s", described(error))


def _decoded(stored: Any) -> Log:
    if not isinstance(stored, bytes):
        return Log()
    try:
        return msgspec.json.decode(stored, type=Log)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Log()
