"""Stores of states: a shared dictionary in LMDB or Redis, or the memory of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.shdict import SharedDict, shdicts

from .direct import DirectStore
from .interface import Store
from .local import LocalStore

if TYPE_CHECKING:
    from resty_django.shdict.lmdb import LmdbDict
    from resty_django.shdict.redis import RedisDict

_store_by_id: WeakValueDictionary[int, Store] = WeakValueDictionary()
"""Stores by the `id` of their dictionary, which lives as long as its store."""


def store_of(dictionary: object) -> Store:
    """Return the store for a shared dictionary or a `LocalStore`, one for each. Raise `TypeError` for other types."""
    if not isinstance(dictionary, SharedDict | LocalStore):
        raise TypeError(
            f"store must be the name of a shared dictionary, a SharedDict or a LocalStore, not {dictionary!r}."
        )
    store = _store_by_id.get(id(dictionary))
    return _store_by_id.setdefault(id(dictionary), _make(dictionary)) if store is None else store


def _make(dictionary: SharedDict | LocalStore) -> Store:
    if isinstance(dictionary, SharedDict) and dictionary.engine == "redis":
        from .redis import RedisStore

        return RedisStore(cast("RedisDict", dictionary))
    return DirectStore(cast("LmdbDict | LocalStore", dictionary))


class Stores(dict[str | None, Store]):
    """The stores of the site by name; None: the store in the setting LIMITS STORE."""

    def __missing__(self, name: str | None) -> Store:
        store = self[conf.limits.store] if name is None else store_of(shdicts[name])
        return self.setdefault(name, store)


STORES = Stores()


on_change(STORES.clear, SETTING, "CACHES")

__all__ = ["STORES", "LocalStore", "Store", "Stores", "store_of"]
