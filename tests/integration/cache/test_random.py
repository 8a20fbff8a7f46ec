"""Processes that do anything at any time, over both engines, against a model of what the rules say."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from resty_django.cache import Fresh, Peek
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Make, Shared, Told, fails, raises, value

TTL, NEG_TTL, RESURRECT_TTL = 2000, 1000, 1500
KEYS = "abcd"
Tags = tuple[str, ...]
TAGS: dict[str, Tags] = {"a": ("red", "round"), "b": ("red", "round"), "c": (), "d": ()}
"""The tags of a key are always the same: L1 may also drop a key for a tag that it had before."""


@dataclass
class Entry:
    """In L2. Times are milliseconds; a `ttl` of 0 is forever."""

    value: Any
    stored: int
    ttl: int
    tags: Tags = ()
    stale: bool = False
    invalid: bool = False

    def live(self, now: int) -> bool:
        return not self.invalid and (not self.ttl or now < self.stored + self.ttl)


@dataclass
class Model:
    """The rules in a few lines. `l1`: value, end and tags by process and key. `news`: by process, the events that it
    has not received yet: a key, a tag, or None for everything."""

    resurrects: bool
    now: int
    l2: dict[str, Entry] = field(default_factory=dict)
    l1: dict[str, dict[str, tuple[Any, int | None, Tags]]] = field(default_factory=dict)
    news: dict[str, list[str | None]] = field(default_factory=dict)

    def get(self, who: str, key: str, outcome: Any, options: dict[str, Any]) -> Told:
        """`outcome`: None without a callback, else its action and its value. `options`: of the call."""
        item = self.l1[who].get(key)
        if item is not None and (item[1] is None or item[1] >= self.now):
            return item[0], None, 1
        entry = self.l2.get(key)
        if entry is not None and entry.live(self.now):
            self.keep(who, key, entry)
            return entry.value, None, 4 if entry.stale else 2
        if outcome is None:
            return None, None, -1
        what, answer = outcome
        if what == "raises":
            return None, f"callback threw an error: {answer}", None
        if what == "fails":
            if entry is None or not self.resurrects:
                return "partial", str(answer), None
            self.store(who, key, entry.value, {"ttl": RESURRECT_TTL / 1000, "tags": entry.tags}, stale=True)
            return entry.value, None, 4
        answer, ttl = answer if isinstance(answer, Fresh) else (answer, None)
        if ttl is None or ttl >= 0:
            self.store(who, key, answer, options if ttl is None else {**options, "ttl": ttl, "neg_ttl": ttl})
        return as_stored(answer), None, 3

    def store(self, who: str, key: str, answer: Any, options: dict[str, Any], stale: bool = False) -> None:
        usual = NEG_TTL if answer is None and not stale else TTL
        seconds = options.get("neg_ttl" if answer is None and not stale else "ttl", usual / 1000)
        self.l2[key] = Entry(as_stored(answer), self.now, round(seconds * 1000), options.get("tags", ()), stale)
        self.keep(who, key, self.l2[key])

    def keep(self, who: str, key: str, entry: Entry) -> None:
        self.l1[who][key] = entry.value, entry.stored + entry.ttl if entry.ttl else None, entry.tags

    def set_many(self, who: str, values: dict[str, Any], options: dict[str, Any]) -> None:
        for key, answer in values.items():
            self.store(who, key, answer, options)
            self.tell(who, key)

    def get_many(self, who: str, keys: str) -> dict[str, Any]:
        hits = {key: self.get(who, key, None, {}) for key in keys}
        return {key: answer for key, (answer, _, level) in hits.items() if level != -1}

    def delete_many(self, who: str, keys: str) -> None:
        for key in keys:
            self.l2.pop(key, None)
            self.forget(who, key)
            self.tell(who, key)

    def purge(self, who: str, free: bool) -> None:
        for entry in self.l2.values():
            entry.invalid = True
        if free:
            self.l2.clear()
        self.forget(who, None)
        self.tell(who, None)

    def invalidate_tags(self, who: str, *tags: str) -> None:
        for tag in tags:
            for entry in self.l2.values():
                entry.invalid = entry.invalid or tag in entry.tags
            self.forget(who, tag)
            self.tell(who, tag)

    def tell(self, who: str, what: str | None) -> None:
        for process in self.news:
            if process != who:
                self.news[process].append(what)

    def forget(self, who: str, what: str | None) -> None:
        items = self.l1[who].items()
        self.l1[who] = {key: item for key, item in items if what is not None and what != key and what not in item[2]}

    def update(self, who: str) -> None:
        for what in self.news[who]:
            self.forget(who, what)
        self.news[who].clear()

    def peek(self, key: str, stale: bool) -> Any:
        entry = self.l2.get(key)
        if entry is None or not (stale or entry.live(self.now)):
            return None
        expired = not entry.live(self.now)
        remaining = (entry.stored + entry.ttl - self.now) / 1000 if entry.ttl else 0.0
        return Peek(pytest.approx(min(remaining, -0.001) if expired else remaining), entry.value, expired)


def as_stored(answer: Any) -> Any:
    return list(answer) if isinstance(answer, tuple) else answer


CALLBACKS = {
    "gives": value,
    "raises": lambda answer: raises(ValueError(answer)),
    "fails": lambda answer: fails(answer, "partial"),
}


def an_outcome(chance: random.Random, number: int) -> Any:
    return chance.choice(
        [
            None,
            None,
            ("gives", f"v{number}"),
            ("gives", {"number": number}),
            ("gives", (number, "x")),
            ("gives", None),
            ("gives", Fresh(number, chance.choice([None, 0, 0.5, 3, -1]))),
            ("gives", Fresh(None, chance.choice([None, 3]))),
            ("raises", f"boom {number}"),
            ("fails", f"down {number}"),
            ("fails", f"down {number}"),
        ]
    )


OPTIONS: list[dict[str, Any]] = [
    *[{}] * 3,
    {"ttl": 3},
    {"ttl": 0, "neg_ttl": 0},
    {"neg_ttl": 3},
]
WEIGHTS = {
    "get": 60,
    "get_many": 4,
    "set": 5,
    "set_many": 2,
    "refresh": 2,
    "delete": 3,
    "delete_many": 1,
    "purge": 2,
    "invalidate_tags": 3,
    "update": 12,
    "peek": 6,
    "wait": 20,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("resurrects", "misses"), [(True, False), (False, False), (True, True)])
async def test_anything_at_any_time(
    make: Make, shared: Shared, clock: Clock, seed: int, resurrects: bool, misses: bool
) -> None:
    chance = random.Random(seed)
    settings = {
        "ttl": TTL / 1000,
        "neg_ttl": NEG_TTL / 1000,
        "resurrect_ttl": RESURRECT_TTL / 1000 if resurrects else None,
        "shm_miss": shared("misses") if misses else None,
    }
    processes = {who: make(who, **settings) for who in "ABC"}
    model = Model(resurrects, clock.milliseconds, l1={who: {} for who in "ABC"}, news={who: [] for who in "ABC"})
    levels = set()
    for number in range(1000):
        who, key = chance.choice("ABC"), chance.choice(KEYS)
        options = {**chance.choice(OPTIONS), "tags": TAGS[key]}
        process = processes[who]
        (what,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        step = f"seed {seed}, step {number}: {who} {what} {key} {options}"
        both = "ab" if key in "ab" else "cd"
        new_value = chance.choice([number, None, f"s{number}", (number,)])
        if what == "get":
            outcome = an_outcome(chance, number)
            callback = None if outcome is None else CALLBACKS[outcome[0]](outcome[1])
            expected = model.get(who, key, outcome, options)
            assert await process.lookup(key, callback, **options) == expected, f"{step} {outcome}"
            levels.add(expected[2])
        elif what == "get_many":
            assert await process.do("get_many", KEYS) == model.get_many(who, KEYS), step
        elif what == "set":
            model.set_many(who, {key: new_value}, options)
            await process.do("set", key, new_value, **options)
        elif what == "set_many":
            values = dict.fromkeys(both, new_value)
            model.set_many(who, values, options)
            assert await process.do("set_many", values, **options) == [], step
        elif what == "refresh":
            fresh = Fresh(new_value, chance.choice([None, 0.5, 3]))
            times = {} if fresh.ttl is None else {"ttl": fresh.ttl, "neg_ttl": fresh.ttl}
            model.set_many(who, {key: new_value}, {**options, **times})
            refreshed = await process.do("refresh", key, process.callback(value(fresh)), **options)
            assert refreshed == as_stored(new_value), step
        elif what == "delete":
            model.delete_many(who, key)
            await process.do("delete", key)
        elif what == "delete_many":
            model.delete_many(who, both)
            await process.do("delete_many", both)
        elif what == "purge":
            free = chance.random() < 0.5
            model.purge(who, free)
            await process.do("purge", free)
        elif what == "invalidate_tags":
            tags = chance.choice([("red",), ("round", "green"), ("green",)])
            model.invalidate_tags(who, *tags)
            await process.do("invalidate_tags", *tags)
        elif what == "update":
            model.update(who)
            assert await process.update() is None, step
        elif what == "peek":
            stale = chance.random() < 0.5
            assert await process.do("peek", key, stale) == model.peek(key, stale), step
        else:
            clock.advance(chance.choice([0.001, 0.25, 0.5, 1, 1.5]))
            model.now = clock.milliseconds
    assert levels >= ({-1, 1, 2, 3, None, 4} if resurrects else {-1, 1, 2, 3, None})
