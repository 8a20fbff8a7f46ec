"""What is in L2 of a cache: its keys page by page, and one of them with its value. Nothing of it is run or loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from resty_django.admin.figures import TYPES, Key, life_text, size_of, value_text
from resty_django.events.steps import run
from resty_django.shdict import Item, SharedDict, WrongKind

from .. import entries, records
from ..mlcache import MLCache
from ..stats import LISTED
from ..store import Store
from .facts import place, seconds

LOOKED_AT: Final = 10_000
"""Keys of a dictionary that a search looks at."""
PAGE: Final = 50
"""Keys of one page."""

Cache = MLCache | Store


@dataclass(frozen=True, slots=True)
class Row:
    """A key in the list."""

    key: Key
    life: str
    levels: str
    size: str


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of the keys that begin with a text. `unseen`: not all keys of the dictionary were looked at."""

    rows: list[Row]
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
class Shown:
    """One item, everything as text. `value` is bounded in length; `note` says what is to be known of it."""

    kind: str
    size: str
    life: str
    levels: str
    where: str
    age: str = ""
    value: str = ""
    note: str = ""


def dictionaries_of(cache: Cache) -> tuple[SharedDict, ...]:
    return (cache.shm,) if isinstance(cache, Store) else cache.dictionaries


def prefix_of(cache: Cache) -> str:
    """What begins the keys in L2 and is no part of the cache's own."""
    return "" if isinstance(cache, Store) else f"{cache.name}:"


def search(cache: Cache, begin: str, page: int) -> Rows:
    """The keys that begin with a text, in their order. Raises `SharedDictError`."""
    prefix = prefix_of(cache)
    found: dict[str, SharedDict] = {}
    unseen = False
    for dictionary in dictionaries_of(cache):
        names = dictionary.get_keys(LOOKED_AT)
        unseen = unseen or len(names) >= LOOKED_AT
        for name in names:
            if name.startswith(prefix + begin) and not name.startswith(LISTED):
                found.setdefault(name, dictionary)
    pages = max(1, -(-len(found) // PAGE))
    page = min(max(1, page), pages)
    names = sorted(found)[(page - 1) * PAGE : page * PAGE]
    return Rows(
        [_row(cache, found[name], name, name[len(prefix) :]) for name in names], page, pages, len(found), unseen
    )


def _row(cache: Cache, dictionary: SharedDict, name: str, key: str) -> Row:
    item = _item(dictionary, name)
    life = life_text(dictionary.ttl(name))
    size = "" if item is None else size_of(item.value) or TYPES.get(type(item.value), "")
    return Row(Key.of(key), life, _levels(cache, key, item), size)


def find(cache: Cache, key: str) -> Shown | None:
    """An item, also an expired one that is still there. Raises `SharedDictError`."""
    name = prefix_of(cache) + key
    for dictionary in dictionaries_of(cache):
        item = _item(dictionary, name)
        if item is not None:
            life = None if item.stale else dictionary.ttl(name)
            told = (_levels(cache, key, item), place(dictionary))
            return _shown(cache, item, size_of(item.value), life_text(life), *told)
    return None


def _item(dictionary: SharedDict, name: str) -> Item | None:
    try:
        return dictionary.get_stale(name)
    except WrongKind:  # a list, which is none of the cache's
        return None


def _levels(cache: Cache, key: str, item: Item | None) -> str:
    return ", ".join(_each_level(cache, key, item))


def _each_level(cache: Cache, key: str, item: Item | None) -> Iterator[str]:
    kept = cache.lru.items.get(key)
    if kept is not None and kept[1] >= cache.lru.clock():
        yield "L1 of this process"
    if item is not None:
        stale = item.stale
        if not isinstance(cache, Store):
            record = records.decode(item.value)
            stale = stale or (record is not None and record.stale)
        yield "L2, stale" if stale else "L2"


def _shown(cache: Cache, item: Item, size: str, life: str, levels: str, where: str) -> Shown:
    if isinstance(cache, Store):
        return _of_django(cache, item, size, life, levels, where)
    record = records.decode(item.value)
    if record is None:
        return _foreign(item, size, life, levels, where)
    note = "As the serializer of the cache wrote it." if cache.serializer and record.value is not None else ""
    age = seconds(max(0.0, cache.clock() - record.stored))
    return Shown(_kind(record.value), size, life, levels, where, age, value_text(record.value), note)


def _of_django(cache: Store, item: Item, size: str, life: str, levels: str, where: str) -> Shown:
    try:
        seen = entries.seen(item.value)
    except entries.Foreign:
        return _foreign(item, size, life, levels, where)
    age = seconds(max(0.0, cache.clock() - seen.stored)) if seen.stored else ""
    if seen.pickled:
        note = f"A signed pickle of {seen.pickled:,} bytes. The admin does not load it."
        return Shown("pickle", size, life, levels, where, age, note=note)
    return Shown(_kind(seen.value), size, life, levels, where, age, value_text(seen.value))


def _foreign(item: Item, size: str, life: str, levels: str, where: str) -> Shown:
    note = "Not written by this cache: reading it is a miss."
    return Shown(_kind(item.value), size, life, levels, where, value=value_text(item.value), note=note)


def _kind(value: Any) -> str:
    return "None" if value is None else TYPES.get(type(value), type(value).__name__).partition(",")[0]


def delete(cache: Cache, key: str) -> None:
    """Forget a key in all levels, and tell the other processes. Raises `CacheError`, `SharedDictError`."""
    if isinstance(cache, Store):
        run(cache.delete(key))
    else:
        cache.delete(key)


def purge(cache: Cache, free: bool) -> None:
    """Forget everything in the dictionaries of a cache, and tell the other processes. Raises as `delete`."""
    if isinstance(cache, Store):
        run(cache.clear())
    else:
        cache.purge(free)


__all__ = ["Row", "Rows", "Shown", "delete", "dictionaries_of", "find", "prefix_of", "purge", "search"]
