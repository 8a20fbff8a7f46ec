"""The items in a cache's L2: keys by page, and single values. No serializer is called and no pickle is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _

from resty_django.admin.formatting import duration, number
from resty_django.admin.statistics import KeyView, kind_of, life_text, size_of, value_text
from resty_django.sansio import run
from resty_django.shdict import Item, SharedDict, Unreadable, WrongKind

from ..backend import entries
from ..backend.store import BackendStore
from ..levels import Levels
from ..mlcache.cache import MLCache
from ..statistics.reporter import STATISTICS_PREFIX
from ..storage import records
from ..tags.versions import TAG_PREFIX
from .statistics import dictionary_text

MAX_EXAMINED_KEYS: Final = 10_000
"""Maximum number of keys that a search examines."""
KEYS_PER_PAGE: Final = 50

Cache = MLCache | BackendStore


@dataclass(frozen=True, slots=True)
class ItemRow:
    """A key in the list."""

    key: KeyView
    life: str
    levels: str
    size: str


@dataclass(frozen=True, slots=True)
class ItemPage:
    """One page of keys with a prefix. `unseen`: not all keys of the dictionary were examined."""

    rows: list[ItemRow]
    page: int
    pages: int
    count: int
    unseen: bool

    @property
    def before(self) -> int:
        return self.page - 1

    @property
    def after(self) -> int:
        return self.page + 1 if self.page < self.pages else 0


@dataclass(frozen=True, slots=True)
class Details:
    """One item as text. The length of `value` is limited; `note` explains it."""

    kind: str
    size: str
    life: str
    levels: str
    where: str
    age: str = ""
    value: str = ""
    note: str = ""


def levels_of(cache: Cache) -> Levels:
    return cache if isinstance(cache, BackendStore) else cache.levels


def search(cache: Cache, begin: str, page: int, *, reverse: bool = False) -> ItemPage:
    """Return the keys with a prefix, sorted. Raise `SharedDictError`."""
    prefix = levels_of(cache).prefix
    matches, unseen = _matches(cache, begin)
    pages = max(1, -(-len(matches) // KEYS_PER_PAGE))
    page = min(max(1, page), pages)
    names = sorted(matches, reverse=reverse)[(page - 1) * KEYS_PER_PAGE : page * KEYS_PER_PAGE]
    return ItemPage(
        [_row(cache, matches[name], name, name[len(prefix) :]) for name in names], page, pages, len(matches), unseen
    )


def _matches(cache: Cache, begin: str) -> tuple[dict[str, SharedDict], bool]:
    """Return the names of keys with a prefix and their dictionaries, and whether not all keys were examined."""
    prefix = levels_of(cache).prefix
    matches: dict[str, SharedDict] = {}
    unseen = False
    for dictionary in cache.dictionaries:
        names = dictionary.get_keys(MAX_EXAMINED_KEYS)
        unseen = unseen or len(names) >= MAX_EXAMINED_KEYS
        for name in names:
            if name.startswith(prefix + begin) and not name.startswith((STATISTICS_PREFIX, TAG_PREFIX)):
                matches.setdefault(name, dictionary)
    return matches, unseen


def _row(cache: Cache, dictionary: SharedDict, name: str, key: str) -> ItemRow:
    item = _item(dictionary, name)
    life = life_text(dictionary.ttl(name))
    value = None if item is None else item.value
    size = "" if value is None else size_of(value) or kind_of(value)
    return ItemRow(KeyView.of(key), life, _levels(cache, key, item), size)


def find(cache: Cache, key: str) -> Details | None:
    """Return an item, even if it has expired but is still stored. Raise `SharedDictError`."""
    name = levels_of(cache).prefix + key
    for dictionary in cache.dictionaries:
        item = _item(dictionary, name)
        if item is not None:
            life = None if item.stale else dictionary.ttl(name)
            levels, where = _levels(cache, key, item), dictionary_text(dictionary)
            return _details(cache, item, size_of(item.value), life_text(life), levels, where)
    return None


def _item(dictionary: SharedDict, name: str) -> Item | None:
    try:
        return dictionary.get_stale(name)
    except (WrongKind, Unreadable):  # a list, or bytes of another program
        return None


def _levels(cache: Cache, key: str, item: Item | None) -> str:
    return ", ".join(_each_level(cache, key, item))


def _each_level(cache: Cache, key: str, item: Item | None) -> Iterator[str]:
    l1_item = cache.lru.items.get(key)
    if l1_item is not None and l1_item.expires >= cache.lru.clock():
        yield _("L1 of this process")
    if item is not None:
        stale = item.stale
        if not isinstance(cache, BackendStore):
            record = records.decode(item.value, limit=levels_of(cache).compressor.limit)
            stale = stale or (record is not None and record.stale)
        yield _("L2, stale") if stale else "L2"


def _details(cache: Cache, item: Item, size: str, life: str, levels: str, where: str) -> Details:
    if isinstance(cache, BackendStore):
        return _of_django(cache, item, size, life, levels, where)
    record = records.decode(item.value, limit=levels_of(cache).compressor.limit)
    if record is None:
        return _foreign(item, size, life, levels, where)
    note = (
        _("Shown as encoded by the cache's serializer.") if cache.setup.serializer and record.value is not None else ""
    )
    age = duration(max(0.0, cache.clock() - record.stored))
    return Details(_kind(record.value), size, life, levels, where, age, value_text(record.value), note)


def _of_django(cache: BackendStore, item: Item, size: str, life: str, levels: str, where: str) -> Details:
    try:
        raw = item.value
        entry = entries.inspect(raw, levels_of(cache).compressor.limit)
    except entries.Foreign:
        return _foreign(item, size, life, levels, where)
    age = duration(max(0.0, cache.clock() - entry.stored)) if entry.stored else ""
    if entry.pickled:
        note = _("A signed pickle of %(size)s bytes. The admin does not load it.") % {"size": number(entry.pickled)}
        return Details("pickle", size, life, levels, where, age, note=note)
    return Details(_kind(entry.value), size, life, levels, where, age, value_text(entry.value))


def _foreign(item: Item, size: str, life: str, levels: str, where: str) -> Details:
    note = _("Not written by this cache; reading it counts as a miss.")
    return Details(_kind(item.value), size, life, levels, where, value=value_text(item.value), note=note)


def _kind(value: Any) -> str:
    return "None" if value is None else kind_of(value).partition(",")[0]


def delete(cache: Cache, key: str) -> None:
    """Delete a key in all levels, and notify the other processes. Raise `CacheError` or `SharedDictError`."""
    if isinstance(cache, BackendStore):
        run(cache.delete(key))
        _check(cache)
    else:
        cache.delete(key, on_error="raise")


def _check(cache: BackendStore) -> None:
    """Raise `Unavailable` or `NoMemory` if the deletion waits until the store can be used again."""
    if cache.breaker.pending:
        raise cache.breaker.bypassed()


def invalidate_tag(cache: Cache, tag: str) -> None:
    """Invalidate a tag in all levels, and notify the other processes. Raise `CacheError` or `SharedDictError`."""
    if isinstance(cache, BackendStore):
        run(cache.invalidate_tags((tag,)))
        _check(cache)
    else:
        cache.invalidate_tags(tag, on_error="raise")


def purge(cache: Cache, free: bool) -> None:
    """Delete everything in a cache's dictionaries, and notify the other processes. Errors as in `delete`."""
    if isinstance(cache, BackendStore):
        run(cache.flush(True))
        _check(cache)
    else:
        cache.purge(free, on_error="raise")
