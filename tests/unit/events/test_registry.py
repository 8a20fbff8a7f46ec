"""The handlers of an event, and their order."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from resty_django.events.registry import Registry


class Called:
    """Callbacks by name: `called.a` is one and the same function each time."""

    def __init__(self) -> None:
        self.made: dict[str, Callable[..., str]] = {}

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name not in self.made:
            self.made[name] = lambda: name
        return self.made[name]


@pytest.fixture
def fn() -> Called:
    return Called()


@pytest.fixture
def registry() -> Registry:
    return Registry()


def order(registry: Registry, source: str = "s", event: str = "e") -> str:
    return "".join(callback() for callback in registry.matching(source, event))


def test_handlers_run_from_the_general_to_the_specific(registry: Registry, fn: Called) -> None:
    registry.add(fn.e, "s", "e")
    registry.add(fn.s, "s")
    registry.add(fn.g)
    registry.add(fn.x, "s", "other")
    registry.add(fn.y, "other")
    assert order(registry) == "gse"
    assert order(registry, "s", "other") == "gsx"
    assert order(registry, "other") == "gy"
    assert order(registry, "nobody's") == "g"


def test_weak_handlers_precede_strong_ones_at_each_level(registry: Registry, fn: Called) -> None:
    registry.add(fn.a)
    registry.add(fn.b, weak=True)
    registry.add(fn.c, "s")
    registry.add(fn.d, "s", weak=True)
    registry.add(fn.e, "s", "e")
    registry.add(fn.f, "s", "e", weak=True)
    assert order(registry) == "badcfe"


def test_a_handler_registered_twice_runs_twice_and_is_removed_once(registry: Registry, fn: Called) -> None:
    registry.add(fn.a, "s")
    registry.add(fn.b, "s")
    registry.add(fn.a, "s")
    registry.add(fn.a, "s", weak=True)
    assert order(registry) == "aaba"
    assert registry.remove(fn.a, "s") is True
    assert order(registry) == "b"
    assert registry.remove(fn.a, "s") is False


def test_each_name_has_a_separate_entry(registry: Registry, fn: Called) -> None:
    registry.add(fn.a, "s", "e", "f", "e")
    assert order(registry) == "aa"
    assert order(registry, "s", "f") == "a"
    assert registry.remove(fn.a, "s", "e") is True
    assert order(registry) == ""
    assert order(registry, "s", "f") == "a"


def test_a_removal_affects_only_the_given_source_and_names(registry: Registry, fn: Called) -> None:
    registry.add(fn.a)
    registry.add(fn.a, "s")
    assert registry.remove(fn.a, "s", "e") is False
    assert registry.remove(fn.b) is False
    assert registry.remove(fn.a) is True
    assert order(registry) == "a"


@pytest.mark.parametrize(
    ("removed", "expected"),
    [("a", "cb"), ("b", "ac"), ("c", "ab"), ("ab", "c"), ("ac", "b"), ("abc", "")],
)
def test_a_hole_is_filled_by_the_last_entry(registry: Registry, fn: Called, removed: str, expected: str) -> None:
    for name in "abc":
        registry.add(getattr(fn, name))
    for name in removed:
        assert registry.remove(getattr(fn, name))
    assert order(registry) == expected
    assert order(registry) == expected


def test_holes_are_filled_before_new_entries_follow(registry: Registry, fn: Called) -> None:
    for name in "abcd":
        registry.add(getattr(fn, name))
    registry.remove(fn.a)
    registry.add(fn.x)
    assert order(registry) == "xbcd"


def test_registrations_and_removals_take_effect_during_a_run(registry: Registry, fn: Called) -> None:
    def meddle() -> str:
        registry.remove(fn.b)
        registry.remove(meddle)
        registry.add(fn.n, "s", "e")
        registry.add(fn.m)
        return "!"

    registry.add(fn.a)
    registry.add(meddle)
    registry.add(fn.b)
    registry.add(fn.c)
    assert order(registry) == "a!mcn"
    assert order(registry) == "acmn"


def test_a_weak_callback_vanishes_with_its_last_reference(registry: Registry, fn: Called) -> None:
    for name in "abc":
        registry.add(getattr(fn, name), weak=True)
    del fn.made["a"]
    gc.collect()
    assert order(registry) == "cb"
    registry.add(lambda: "never", weak=True)
    gc.collect()
    assert order(registry) == "cb"


class Owner:
    def method(self) -> str:
        return "m"

    def __eq__(self, other: object) -> bool:
        raise AssertionError("callbacks are not compared by their own will")

    __hash__ = object.__hash__


def test_methods_are_the_same_each_time_and_weak_by_their_object(registry: Registry) -> None:
    owner = Owner()
    registry.add(owner.method, weak=True)
    registry.add(owner.method)
    registry.add(Owner().method)
    assert order(registry) == "mmm"
    assert registry.remove(owner.method) is True
    assert order(registry) == "m"
    registry.add(owner.method, weak=True)
    assert order(registry) == "mm"
    del owner
    gc.collect()
    assert order(registry) == "m"


def test_objects_without_weak_references_are_refused(registry: Registry) -> None:
    with pytest.raises(TypeError):
        registry.add(7, weak=True)


def test_names_need_a_source(registry: Registry, fn: Called) -> None:
    for call in (registry.add, registry.remove):
        with pytest.raises(ValueError, match=r"^source"):
            call(fn.a, None, "e")


def test_other_threads_may_register_while_one_runs(registry: Registry) -> None:
    """Callbacks that stay registered run once in each run, whatever else changes."""
    ends = threading.Event()
    called: list[Any] = []

    def stays() -> None:
        called.append(1)

    def come_and_go() -> None:
        chance = random.Random(5)
        own_callbacks: list[Callable[[], None]] = []
        while not ends.is_set():
            if own_callbacks and chance.random() < 0.5:
                assert registry.remove(own_callbacks.pop(chance.randrange(len(own_callbacks))))
            else:
                own_callbacks.append(lambda: None)
                registry.add(own_callbacks[-1])

    registry.add(stays)
    threads = [threading.Thread(target=come_and_go) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for run in range(1, 50):
            for callback in registry.matching("s", "e"):
                callback()
            assert len(called) == run
    finally:
        ends.set()
        for thread in threads:
            thread.join()
