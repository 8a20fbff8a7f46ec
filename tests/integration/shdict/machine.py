"""A dictionary compared with a plain model: the same calls in any order, while time passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from resty_django.shdict import (
    BadValue,
    Item,
    Keep,
    NotANumber,
    NotFound,
    SharedDict,
    SharedDictError,
    StoreOutcome,
    Update,
    WrongKind,
)
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import Clock

from .structure import check

LONG: dict[str, Any] = {
    **{"l480": "l" * 480, "l481": "l" * 481, "l2000": "l" * 2000, "k65535": "k" * 65535},
    **{"x1850": "x" * 1850, "y4081": "y" * 4081, "z60000": b"z" * 60_000},
}


def of_name(name: str) -> Any:
    return LONG[name]


def long(*names: str) -> st.SearchStrategy[Any]:
    """Choose some of these by name: hypothesis stores a text of all choices for each example."""
    return st.sampled_from(names).map(of_name)


KEYS = st.sampled_from(["a", "b", "c", "*"]) | long("l480", "l481", "l2000", "k65535")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | long("x1850", "y4081")
INTS = st.integers(-5, 5) | st.sampled_from([2**63 - 1, -(2**63)])
FLOATS = st.floats(allow_nan=False)
ITEMS = TEXTS | INTS | FLOATS | st.binary(max_size=3)
VALUES = ITEMS | st.booleans() | st.lists(INTS, max_size=2) | long("z60000")
TTLS = st.sampled_from([0, 0, 0.001, 1, 2.5, 100])
FLAGS = st.sampled_from([0, 0, 1, 2**32 - 1])


@dataclass(frozen=True)
class Entry:
    """An entry of the model: a value, or with `items` a list."""

    value: Any = None
    flags: int = 0
    expires: int = 0
    flushed: bool = False
    items: tuple[Any, ...] | None = None


def same(value: Any, expected: Any) -> bool:
    if isinstance(value, float) and isinstance(expected, float):
        return math.isnan(value) == math.isnan(expected) and (value == expected or math.isnan(value))
    return type(value) is type(expected) and value == expected


class Machine(RuleBasedStateMachine):
    """`make` returns an empty dictionary with the clock `clock`, large enough that nothing is evicted."""

    def __init__(self, make: Callable[[], SharedDict], clock: Clock) -> None:
        super().__init__()
        self.make = make
        self.clock = clock
        self.model: dict[str, Entry] = {}

    @initialize()
    def start(self) -> None:
        self.dictionary = self.make()

    def teardown(self) -> None:
        if hasattr(self, "dictionary"):
            for key, entry in self.model.items():
                if entry.items is None:
                    assert self.dictionary.get_stale(key) == Item(entry.value, entry.flags, not self.lives(entry))
            self.dictionary.flush_all()
            assert self.dictionary.flush_expired() == len(self.model)
            if isinstance(self.dictionary, LmdbDict):
                assert check(self.dictionary) == 0
            self.dictionary.close()

    def lives(self, entry: Entry) -> bool:
        return not entry.flushed and not 0 < entry.expires <= self.clock.milliseconds

    def live(self, key: str) -> Entry | None:
        entry = self.model.get(key)
        return entry if entry is not None and self.lives(entry) else None

    def after(self, ttl: float) -> int:
        return self.clock.milliseconds + round(ttl * 1000) if ttl else 0

    def fails(self, error: type[SharedDictError], call: Callable[..., Any], *args: Any, **options: Any) -> None:
        try:
            result = call(*args, **options)
        except error:
            return
        raise AssertionError(f"{result!r} instead of {error.__name__}")

    @invariant()
    def tables_fit_together(self) -> None:
        if isinstance(getattr(self, "dictionary", None), LmdbDict):
            assert check(self.dictionary) == len(self.model)  # type: ignore[arg-type]

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 3, 200]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        entry = self.live(key)
        if entry is None:
            assert self.dictionary.get(key, "none") == "none"
            assert self.dictionary.get_item(key) is None
            assert self.dictionary.ttl(key) is None
            assert self.dictionary.llen(key) == 0
            return
        remaining = (entry.expires - self.clock.milliseconds) / 1000 if entry.expires else 0
        assert self.dictionary.ttl(key) == remaining
        if entry.items is not None:
            self.fails(WrongKind, self.dictionary.get, key)
            self.fails(WrongKind, self.dictionary.get_item, key)
            assert self.dictionary.llen(key) == len(entry.items)
        else:
            assert same(self.dictionary.get(key), entry.value)
            assert self.dictionary.get_item(key) == Item(entry.value, entry.flags, False)
            self.fails(WrongKind, self.dictionary.llen, key)

    @rule(key=KEYS)
    def get_stale(self, key: str) -> None:
        entry = self.model.get(key)
        if entry is None:
            assert self.dictionary.get_stale(key) is None
        elif entry.items is None:
            assert self.dictionary.get_stale(key) == Item(entry.value, entry.flags, not self.lives(entry))

    @rule(limit=st.integers(0, 9))
    def get_keys(self, limit: int) -> None:
        keys = self.dictionary.get_keys(limit)
        expected = {key for key, entry in self.model.items() if self.lives(entry)}
        assert len(keys) == len(set(keys)) == (min(limit, len(expected)) if limit else len(expected))
        assert set(keys) <= expected

    @rule(key=KEYS, value=VALUES, ttl=TTLS, flags=FLAGS, call=st.sampled_from(["set", "safe_set"]))
    def set(self, key: str, value: Any, ttl: float, flags: int, call: str) -> None:
        assert getattr(self.dictionary, call)(key, value, ttl, flags) is StoreOutcome.STORED
        self.model[key] = Entry(value, flags, self.after(ttl))

    @rule(key=KEYS, value=VALUES, ttl=TTLS, flags=FLAGS, call=st.sampled_from(["add", "safe_add"]))
    def add(self, key: str, value: Any, ttl: float, flags: int, call: str) -> None:
        outcome = getattr(self.dictionary, call)(key, value, ttl, flags)
        if self.live(key) is None:
            assert outcome is StoreOutcome.STORED
            self.model[key] = Entry(value, flags, self.after(ttl))
        else:
            assert outcome is StoreOutcome.EXISTS

    @rule(key=KEYS, value=VALUES, ttl=TTLS)
    def add_or_get(self, key: str, value: Any, ttl: float) -> None:
        entry = self.live(key)
        if entry is None:
            assert self.dictionary.add_or_get(key, value, ttl) is StoreOutcome.STORED
            self.model[key] = Entry(value, 0, self.after(ttl))
        elif entry.items is not None:
            self.fails(WrongKind, self.dictionary.add_or_get, key, value, ttl)
        else:
            assert same(self.dictionary.add_or_get(key, value, ttl), entry.value)

    @rule(key=KEYS, value=VALUES, ttl=TTLS, flags=FLAGS)
    def replace(self, key: str, value: Any, ttl: float, flags: int) -> None:
        outcome = self.dictionary.replace(key, value, ttl, flags)
        if self.live(key) is None:
            assert outcome is StoreOutcome.NOT_FOUND
        else:
            assert outcome is StoreOutcome.STORED
            self.model[key] = Entry(value, flags, self.after(ttl))

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        assert self.dictionary.delete(key) is (self.live(key) is not None)
        self.model.pop(key, None)

    @rule(key=KEYS)
    def set_none(self, key: str) -> None:
        assert self.dictionary.set(key, None) is StoreOutcome.STORED
        self.model.pop(key, None)

    @rule(key=KEYS, another_value=VALUES, same_value=st.booleans())
    def delete_if(self, key: str, another_value: Any, same_value: bool) -> None:
        entry = self.live(key)
        expected = entry.value if entry and entry.items is None and same_value else another_value
        held = entry is not None and entry.items is None and same(entry.value, expected)
        assert self.dictionary.delete_if(key, expected) is held
        if held:
            del self.model[key]

    @rule(key=KEYS, ttl=TTLS, another_value=VALUES, how=st.sampled_from(["expire", "same", "other"]))
    def expire(self, key: str, ttl: float, another_value: Any, how: str) -> None:
        entry = self.live(key)
        if how == "expire":
            held = entry is not None
            assert self.dictionary.expire(key, ttl) is held
        else:
            expected = entry.value if entry and entry.items is None and how == "same" else another_value
            held = entry is not None and entry.items is None and same(entry.value, expected)
            assert self.dictionary.expire_if(key, expected, ttl) is held
        if entry is not None and held:
            self.model[key] = replace(entry, expires=self.after(ttl))

    @rule(key=KEYS, by=INTS | FLOATS, init=st.none() | INTS | FLOATS, init_ttl=TTLS)
    def incr(self, key: str, by: Any, init: Any, init_ttl: float) -> None:
        entry = self.live(key)
        options = {} if init is None else {"init": init, "init_ttl": init_ttl}
        if entry is None and init is None:
            self.fails(NotFound, self.dictionary.incr, key, by)
            return
        before = init if entry is None else entry.value
        if type(before) not in (int, float):
            self.fails(NotANumber, self.dictionary.incr, key, by, **options)
            return
        total = before + by
        if type(total) is int and not -(2**63) <= total < 2**63:
            self.fails(BadValue, self.dictionary.incr, key, by, **options)
            return
        assert same(self.dictionary.incr(key, by, **options), total)
        self.model[key] = Entry(total, 0, self.after(init_ttl)) if entry is None else replace(entry, value=total)

    @rule(key=KEYS, value=VALUES | st.none(), ttl=st.none() | TTLS, how=st.sampled_from(["change", "keep", "raise"]))
    def update(self, key: str, value: Any, ttl: float | None, how: str) -> None:
        entry = self.live(key)
        old_values: list[Any] = []

        def function(old: Any) -> Update | Keep:
            old_values.append(old)
            if how == "raise":
                raise BadValue("on purpose")
            return Keep("kept") if how == "keep" else Update(value, ttl, "changed")

        if entry is not None and entry.items is not None:
            self.fails(WrongKind, self.dictionary.update, key, function)
            return
        if how == "raise":
            self.fails(BadValue, self.dictionary.update, key, function)
        else:
            assert self.dictionary.update(key, function) == ("kept" if how == "keep" else "changed")
        assert same(old_values[-1], None if entry is None else entry.value)
        if how != "change":
            return
        if value is None:
            self.model.pop(key, None)
            return
        stored = entry or Entry()
        self.model[key] = Entry(value, stored.flags, stored.expires if ttl is None else self.after(ttl))

    @rule(key=KEYS, item=ITEMS, at_head=st.booleans())
    def push(self, key: str, item: Any, at_head: bool) -> None:
        call = self.dictionary.lpush if at_head else self.dictionary.rpush
        entry = self.live(key) or Entry(items=())
        if entry.items is None:
            self.fails(WrongKind, call, key, item)
            return
        items = (item, *entry.items) if at_head else (*entry.items, item)
        assert call(key, item) == len(items)
        self.model[key] = replace(entry, items=items)

    @rule(key=KEYS, at_head=st.booleans())
    def pop(self, key: str, at_head: bool) -> None:
        call = self.dictionary.lpop if at_head else self.dictionary.rpop
        entry = self.live(key)
        if entry is None:
            assert call(key) is None
        elif entry.items is None:
            self.fails(WrongKind, call, key)
        else:
            assert same(call(key), entry.items[0 if at_head else -1])
            items = entry.items[1:] if at_head else entry.items[:-1]
            if items:
                self.model[key] = replace(entry, items=items)
            else:
                del self.model[key]

    @rule()
    def flush_all(self) -> None:
        self.dictionary.flush_all()
        self.model = {key: replace(entry, flushed=True) for key, entry in self.model.items()}

    @rule(limit=st.integers(0, 3))
    def flush_expired(self, limit: int) -> None:
        expired = [key for key, entry in self.model.items() if not self.lives(entry)]
        freed = self.dictionary.flush_expired(limit)
        assert freed == (min(limit, len(expired)) if limit else len(expired))
        if freed == len(expired):
            for key in expired:
                del self.model[key]
        else:  # which of them went, the dictionary alone knows
            for key in expired:
                entry = self.model[key]
                gone = entry.items is None and self.dictionary.get_stale(key) is None
                if gone or (entry.items is not None and self._list_gone(key)):
                    del self.model[key]

    def _list_gone(self, key: str) -> bool:
        try:
            return self.dictionary.get_stale(key) is None
        except WrongKind:
            return False

    @precondition(lambda self: self.model)
    @rule()
    def close(self) -> None:
        self.dictionary.close()
