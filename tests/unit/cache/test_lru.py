"""The LRU: its calls one by one, against a model, and from many threads at once."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections import OrderedDict
from functools import partial
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from resty_django.cache import LRU
from resty_django.cache.storage.lru import LRUItem, StaleItem
from tests.dictionaries import Clock
from tests.threads import together


def test_values_come_back_as_they_are() -> None:
    lru = LRU(2)
    thing: list[Any] = []
    lru.set("a", thing)
    assert lru.get("a") is thing
    assert lru.get("b") is None
    assert lru.get("b", 7) == 7
    assert len(lru) == lru.count() == 1
    assert lru.capacity() == 2


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "2", None])
def test_a_size_that_is_too_small(size: Any) -> None:
    with pytest.raises(ValueError, match=r"^size too small"):
        LRU(size)


@pytest.mark.parametrize("flags", [-1, 2**32])
def test_flags_have_32_bits(flags: int) -> None:
    lru = LRU(1)
    with pytest.raises(ValueError, match="flags must be an integer"):
        lru.set("a", 1, flags=flags)
    lru.set("a", 1, flags=2**32 - 1)
    assert lru.get_stale("a") == StaleItem(1, 2**32 - 1)


def test_a_ttl_below_0_is_refused() -> None:
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="ttl must be None"):
            LRU(1).set("a", 1, ttl=wrong)


class Machine(RuleBasedStateMachine):
    """Against a plain list of [key, value, expiry, flags], most recent first."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.lru = LRU(3, self.clock)
        self.model: OrderedDict[str, tuple[int, int | None, int]] = OrderedDict()

    keys = st.sampled_from("abcde")

    @rule(key=keys, value=st.integers(), ttl=st.none() | st.integers(0, 3), flags=st.integers(0, 9))
    def set(self, key: str, value: int, ttl: int | None, flags: int) -> None:
        self.lru.set(key, value, ttl, flags)
        self.model.pop(key, None)
        self.model[key] = value, None if ttl is None else self.clock.milliseconds + ttl * 1000, flags
        while len(self.model) > 3:
            self.model.popitem(last=False)

    def over(self, key: str) -> bool:
        expiry = self.model[key][1]
        return expiry is not None and expiry < self.clock.milliseconds

    @rule(key=keys)
    def get(self, key: str) -> None:
        expected = self.model[key][0] if key in self.model and not self.over(key) else None
        assert self.lru.get(key) == expected
        if key in self.model:
            self.model.move_to_end(key)

    @rule(key=keys)
    def get_stale(self, key: str) -> None:
        expected = None
        if key in self.model:
            expected = StaleItem(self.model[key][0], self.model[key][2], self.over(key))
            self.model.move_to_end(key)
        assert self.lru.get_stale(key) == expected

    @rule(key=keys)
    def delete(self, key: str) -> None:
        assert self.lru.delete(key) == (self.model.pop(key, None) is not None)

    @precondition(lambda self: len(self.model) == 3)
    @rule()
    def flush_all(self) -> None:
        self.lru.flush_all()
        self.model.clear()

    @rule(seconds=st.sampled_from([0.5, 1, 2]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def same(self) -> None:
        assert self.lru.get_keys() == list(reversed(self.model))
        assert self.lru.get_keys(2) == list(reversed(self.model))[:2]
        assert self.lru.count() == len(self.model)


Machine.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMachine = Machine.TestCase


class Loud:
    """A value whose end runs Python, so that threads change over in the middle of the calls."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __del__(self) -> None:
        time.sleep(0)


def test_many_threads_at_once() -> None:
    lru = LRU(20)
    keys = [f"k{number}" for number in range(40)]
    until = time.monotonic() + 1.0

    def work(seed: int) -> None:
        number = seed
        while time.monotonic() < until:
            for _ in range(50):
                number = (number * 1103515245 + 12345) % 2**31
                key = keys[number // 65536 % len(keys)]
                what = number // 7 % 16
                if what < 8:
                    value = lru.get(key)
                    assert value is None or value.key == key
                elif what < 13:
                    lru.set(key, Loud(key), 0.001 if what == 9 else None)
                elif what == 13:
                    lru.delete(key)
                elif what == 14:
                    lru.get_keys(5)
                elif number % 97 == 0:
                    lru.flush_all()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        together(*(partial(work, seed) for seed in range(8)))
    finally:
        sys.setswitchinterval(before)
    assert lru.count() <= 20
    assert sorted(lru.get_keys()) == sorted(lru.items.keys())
    for number in range(30):  # it works as before
        lru.set(f"new{number}", number)
    assert lru.get_keys() == [f"new{number}" for number in range(29, 9, -1)]


def test_an_evicted_value_is_released() -> None:
    lru = LRU(1)
    lru.set("a", Loud("a"))
    gone = weakref.ref(lru.get("a"))
    lru.set("b", 1)
    gc.collect()
    assert gone() is None


def test_a_value_read_before_a_delete_is_not_stored() -> None:
    lru = LRU(3)
    for forget in (lambda: lru.delete("a"), lru.flush_all, lambda: lru.replace("a", LRUItem(0), 0)):
        version = lru.version("a")
        lru.put("a", LRUItem("read"), version)
        assert lru.get("a") == "read"
        forget()
        assert lru.version("a") > version
        value = lru.get("a")
        lru.put("a", LRUItem("read"), version)
        assert lru.get("a") == value
    lru.put("a", LRUItem("any"))
    assert lru.get("a") == "any"


def test_concurrent_writes_store_neither_value() -> None:
    lru = LRU(3)
    first, second = lru.version("a"), lru.version("a")
    lru.replace("a", LRUItem(1), first)
    assert lru.get("a") == 1
    lru.replace("a", LRUItem(2), second)
    assert lru.get("a") is None
    lru.replace("a", LRUItem(3), lru.version("a"))
    assert lru.get("a") == 3


def test_few_keys_have_a_version_together() -> None:
    lru = LRU(3)
    before = [lru.version(number) for number in range(100)]
    lru.delete(7)
    assert [number for number in range(100) if lru.version(number) != before[number]] == [7]
