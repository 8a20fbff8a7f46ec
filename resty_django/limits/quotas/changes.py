"""Changes of rows by operators and by the site's code: additional units, and resets.

The row is changed first, and then, after the commit, the block in the shared store of this process. Processes with
another store notice the change when they next reserve units, and otherwise after a minute (`blocks.CHECK_MS`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import TypeVar

from django.db import transaction

from resty_django.conf import conf
from resty_django.sansio import run

from . import blocks, registry, rows
from .periods import Period
from .quota import Quota
from .rows import Granted
from .store import BlockChange, BlockStore, allowing, looking, syncing

T = TypeVar("T")


def grant(quota: Quota | str, key: str, period: Period, units: int, limit: int) -> Granted:
    """Add units, which may be negative, to the limit of a key. `limit`: the limit in a row that is inserted.

    `quota`: the quota, or its name.

    Return the additional units before and after it. Raise `ValueError` for too many units, and `django.db.Error`.
    """
    granted = rows.grant(_name(quota), key, period, units)
    while granted is None:
        rows.insert(_name(quota), key, period, limit, conf.limits.quota_keep)
        granted = rows.grant(_name(quota), key, period, units)
    _spread(quota, key, period)
    return granted


def reset(quota: Quota | str, key: str, period: Period) -> int | None:
    """Set the used units of a key to 0. Return the number before it, or None if there is no row.

    Raise `django.db.Error`.
    """
    used = rows.reset(_name(quota), key, period)
    if used is not None:
        _spread(quota, key, period)
    return used


def reserved(quota: Quota | str, key: str, period: Period, resets: int) -> int | None:
    """Return the units of a row that are reserved in the store of this process and not used.

    None: the store cannot be used.
    """
    block = _changed(quota, key, period, looking)
    return None if block is None else blocks.reserved(block, resets)


def _spread(quota: Quota | str, key: str, period: Period) -> None:
    """Change the block after the commit. A remembered refusal is forgotten immediately."""
    if rows.in_transaction():
        _changed(quota, key, period, allowing)
    alias = rows.database()
    if transaction.get_connection(alias).in_atomic_block or not rows.in_transaction():
        transaction.on_commit(partial(_update_block, quota, key, period), using=alias)


def _update_block(quota: Quota | str, key: str, period: Period) -> None:
    _changed(quota, key, period, syncing(rows.read(_name(quota), key, period)))


def _changed(quota: Quota | str, key: str, period: Period, change: BlockChange[T]) -> T | None:
    """Change a block: of a quota that this process has not loaded, in the default store."""
    counted = registry.find_quota(quota) if isinstance(quota, str) else quota
    name = _name(quota)
    store = BlockStore(name, None, time.time, owner=name) if counted is None else counted.blocks
    return run(store.changing(key, period, change))


def _name(quota: Quota | str) -> str:
    return quota if isinstance(quota, str) else quota.name
