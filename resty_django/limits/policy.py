"""The policies of this process: those that code declares and, over them, those of the database.

    policy.declare("checkout", "leaky_bucket", rate="20/s", burst=40, key="user|ip", path="/checkout/*")
    policy.named("checkout").limiter.hit("192.0.2.1")

They are a table in memory that is replaced as a whole. Whoever decides reads it without a lock and without a query.
A change acts here when its commit returns, and in all other processes after an event (`changes`). Every REFRESH seconds
each process looks for changes that no event told of; where the database does not answer, the last known table stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.signals import setting_changed
from django.db import connections, router
from django.http import HttpRequest
from django.urls import ResolverMatch

from resty_django.conf import conf
from resty_django.schema import SETTING

from .background import background
from .spec import FIELDS, BadPolicy, PolicySpec, from_values
from .table import Policy, Table, limiter_of, table_of

log = logging.getLogger("resty_django.limits")

FIRST_WAIT: Final = 1.0
"""Seconds for which the first use within an event loop waits for the database."""
LOOK_WAIT: Final = 2.0


_declared: dict[str, PolicySpec] = {}
_table: Table | None = None
_looking = threading.RLock()
_failing = False


# --- asking ----------------------------------------------------------------------------------------------------------


def named(name: str) -> Policy | None:
    """The policy of that name, also one that is off."""
    table = _table
    if table is None or not background.running:
        table = _begin()
    return table.policies.get(name)


def matching(request: HttpRequest, match: ResolverMatch | None) -> list[Policy]:
    """The policies that apply to a request by themselves, in their order; none that is off."""
    table = _table
    if table is None or not background.running:
        table = _begin()
    return [policy for policy in table.matching if policy.match.fits(request, match)]


def everything() -> dict[str, Policy]:
    """All policies by name."""
    return dict((_table or _begin()).policies)


def faults() -> dict[str, str]:
    """The policies of the database that cannot be used, and why; what they were before, or are in code, acts on."""
    return dict((_table or _begin()).faults)


def ready() -> bool:
    """Whether the policies have been read, so that asking for them waits for nothing."""
    return _table is not None


async def aready() -> None:
    """Read the policies where that is not done, without blocking the event loop."""
    if _table is None:
        await sync_to_async(_read_elsewhere, thread_sensitive=False)()


# --- declaring -------------------------------------------------------------------------------------------------------


def declare(name: str, algorithm: str, **values: Any) -> None:
    """Declare a policy in code, as in `AppConfig.ready`; a row of the same name takes its place.

    `values` are the other fields of a policy: its numbers, `key`, `path`, `methods`, `mode` and so on. Declaring a
    name again replaces it. Raises `BadPolicy`.
    """
    _declared[name] = from_values({"name": name, "algorithm": algorithm, **values})
    if _table is not None:
        refresh()


def declared() -> dict[str, PolicySpec]:
    """What the setting RULES and code have declared, by name. Raises `BadPolicy` for a rule of the settings."""
    specs = [from_values(rule) for rule in conf.limits.rules]
    return {spec.name: spec for spec in specs} | _declared


def withdraw(name: str) -> None:
    """Take back what `declare` said; unknown names are ignored."""
    if _declared.pop(name, None) is not None and _table is not None:
        refresh()


# --- the table -------------------------------------------------------------------------------------------------------


def refresh() -> bool:
    """Look for changes now, on the caller's connection. False where the database does not answer."""
    global _table, _failing
    if not _looking.acquire(timeout=LOOK_WAIT):
        refresh_soon()
        return False
    try:
        old = _table or Table()
        try:
            rows = _rows()
        except Exception as error:  # whatever a database or a router may raise
            if not _failing:
                log.error(
                    "limit policies stay as they are until the database answers: %s: %s", type(error).__name__, error
                )
            _failing = True
            _table = table_of(old, old.rows, declared())
            return False
        if _failing:
            log.warning("limit policies are read again")
        _failing = False
        _table = table_of(old, rows, declared())
        return True
    finally:
        _looking.release()


def refresh_soon() -> None:
    """Look for changes in the background, where the policies are in use."""
    if _table is not None:
        background.run_soon(_task)


def reset() -> None:
    """Forget the table; the next use reads it anew."""
    global _table, _failing
    with _looking:
        _table = None
        _failing = False


def _rows() -> tuple[Any, ...]:
    from .models import LimitPolicy

    newest = LimitPolicy.objects.using(router.db_for_write(LimitPolicy))
    return tuple(newest.order_by("order", "name").values_list(*FIELDS))


def _begin() -> Table:
    """The first use in this process, or in a child of a fork, which keeps the table of its parent and looks again."""
    if _table is not None:
        background.run_soon(_task)
    elif _in_loop():
        reading = threading.Thread(target=_read_elsewhere, name="resty-limits-first", daemon=True)
        reading.start()
        reading.join(FIRST_WAIT)
    else:
        refresh()
    background.run_soon(_task, conf.limits.refresh)
    return _table or table_of(Table(), None, declared())


def _read_elsewhere() -> None:
    """In a thread of its own, which leaves no connection open."""
    try:
        _begin()
    finally:
        connections.close_all()


def _work() -> float:
    """What the background does every REFRESH seconds."""
    if _table is not None:
        try:
            refresh()
        finally:
            connections.close_all()
    return conf.limits.refresh


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_child() -> None:
    global _looking
    _looking = threading.RLock()


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == SETTING:
        reset()


_task = background.add(_work)
os.register_at_fork(after_in_child=_in_child)
setting_changed.connect(_forget, dispatch_uid="resty_django.limits.policy")

__all__ = [
    "BadPolicy",
    "Policy",
    "PolicySpec",
    "declare",
    "declared",
    "everything",
    "faults",
    "limiter_of",
    "matching",
    "named",
    "ready",
    "refresh",
    "refresh_soon",
    "reset",
    "withdraw",
]
