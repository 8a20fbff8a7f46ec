"""Processes that do anything at any time, over both engines, against a model of what the rules say."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from resty_django.cache import Fresh, Peek
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Make, Told, fails, raises, value

TTL, NEG_TTL, RESURRECT_TTL = 2000, 1000, 1500
KEYS = "abc"


@dataclass
class Entry:
    """In L2. Times are milliseconds; a `ttl` of 0 is forever."""

    value: Any
    stored: int
    ttl: int
    stale: bool = False
    purged: bool = False

    def live(self, now: int) -> bool:
        return not self.purged and (not self.ttl or now < self.stored + self.ttl)


@dataclass
class Model:
    """What the rules say, in a few lines: `l1` is value and end by process and key, `news` what it has not heard
    yet."""

    resurrects: bool
    now: int
    l2: dict[str, Entry] = field(default_factory=dict)
    l1: dict[str, dict[str, tuple[Any, int | None]]] = field(default_factory=dict)
    news: dict[str, list[str | None]] = field(default_factory=dict)

    def get(self, who: str, key: str, outcome: Any) -> Told:
        """`outcome`: None for no callback, else a pair of what it does and its value."""
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
            self.store(who, key, entry.value, RESURRECT_TTL, stale=True)
            return entry.value, None, 4
        answer, ttl = answer if isinstance(answer, Fresh) else (answer, None)
        if ttl is None:
            ttl = (NEG_TTL if answer is None else TTL) / 1000
        if ttl >= 0:
            self.store(who, key, answer, round(ttl * 1000))
        return answer, None, 3

    def store(self, who: str, key: str, answer: Any, ttl: int, stale: bool = False) -> None:
        self.l2[key] = Entry(answer, self.now, ttl, stale)
        self.keep(who, key, self.l2[key])

    def keep(self, who: str, key: str, entry: Entry) -> None:
        self.l1[who][key] = entry.value, entry.stored + entry.ttl if entry.ttl else None

    def set(self, who: str, key: str, answer: Any) -> None:
        self.store(who, key, answer, NEG_TTL if answer is None else TTL)
        self.tell(who, key)

    def delete(self, who: str, key: str) -> None:
        self.l2.pop(key, None)
        self.l1[who].pop(key, None)
        self.tell(who, key)

    def purge(self, who: str, free: bool) -> None:
        for entry in self.l2.values():
            entry.purged = True
        if free:
            self.l2.clear()
        self.l1[who].clear()
        self.tell(who, None)

    def tell(self, who: str, key: str | None) -> None:
        for process in self.news:
            if process != who:
                self.news[process].append(key)

    def update(self, who: str) -> None:
        for key in self.news[who]:
            if key is None:
                self.l1[who].clear()
            else:
                self.l1[who].pop(key, None)
        self.news[who].clear()

    def peek(self, key: str, stale: bool) -> Any:
        entry = self.l2.get(key)
        if entry is None or not (stale or entry.live(self.now)):
            return None
        expired = not entry.live(self.now)
        remaining = (entry.stored + entry.ttl - self.now) / 1000 if entry.ttl else 0.0
        return Peek(pytest.approx(min(remaining, -0.001) if expired else remaining), entry.value, expired)


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
            ("gives", None),
            ("gives", Fresh(number, chance.choice([0, 0.5, 3, -1]))),
            ("raises", f"boom {number}"),
            ("fails", f"down {number}"),
            ("fails", f"down {number}"),
        ]
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("resurrects", [True, False])
async def test_anything_at_any_time(make: Make, clock: Clock, seed: int, resurrects: bool) -> None:
    chance = random.Random(seed)
    options = {
        "ttl": TTL / 1000,
        "neg_ttl": NEG_TTL / 1000,
        "resurrect_ttl": RESURRECT_TTL / 1000 if resurrects else None,
    }
    processes = {who: make(who, **options) for who in "ABC"}
    model = Model(resurrects, clock.milliseconds, l1={who: {} for who in "ABC"}, news={who: [] for who in "ABC"})
    levels = set()
    for number in range(400):
        who, key = chance.choice("ABC"), chance.choice(KEYS)
        process = processes[who]
        what = chance.choices(["get", "set", "delete", "purge", "update", "peek", "wait"], [60, 5, 3, 2, 12, 6, 20])[0]
        step = f"seed {seed}, step {number}: {who} {what} {key}"
        if what == "get":
            outcome = an_outcome(chance, number)
            callback = None if outcome is None else CALLBACKS[outcome[0]](outcome[1])
            expected = model.get(who, key, outcome)
            assert await process.lookup(key, callback) == expected, f"{step} {outcome}"
            levels.add(expected[2])
        elif what == "set":
            new_value = chance.choice([number, None, f"s{number}"])
            model.set(who, key, new_value)
            await process.do("set", key, new_value)
        elif what == "delete":
            model.delete(who, key)
            await process.do("delete", key)
        elif what == "purge":
            free = chance.random() < 0.5
            model.purge(who, free)
            await process.do("purge", free)
        elif what == "update":
            model.update(who)
            assert await process.update() is None, step
        elif what == "peek":
            stale = chance.random() < 0.5
            assert await process.do("peek", key, stale) == model.peek(key, stale), step
        else:
            clock.advance(chance.choice([0.25, 0.5, 1, 1.5]))
            model.now = clock.milliseconds
    assert levels >= ({-1, 1, 2, 3, None, 4} if resurrects else {-1, 1, 2, 3, None})
