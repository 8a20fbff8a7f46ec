"""Django's documentation of each call of a cache, tested with our backend on both engines, locmem and django-redis.
Where the documentation leaves room, the test names the behaviour of each backend.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import CacheKeyWarning

from tests.integration.cache.backends import KINDS, Api, fresh

pytestmark = pytest.mark.contract

VALUES: list[Any] = [
    None,
    "",
    "text \N{SNOWMAN}",
    "\ud800",
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    2**100,
    1.5,
    float("inf"),
    True,
    False,
    b"",
    b"\x00\xff",
    [],
    [1, [2, None], {"a": b"b"}],
    {},
    {"id": 7, "name": "Assam", "price": 17.5},
    {"nested": {"list": [1, 2, {"deep": True}]}, 3: "number as key"},
    (1, "two"),
    [(1, 2)],
    {(1, 2): "tuple as key"},
    {1, 2, 3},
    frozenset({1}),
    Decimal("1.10"),
    complex(1, 2),
    ValueError,
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[str]:
    for _ in fresh(request, settings, tmp_path, request.param):
        yield request.param


@pytest.fixture
def api(kind: str) -> Api:
    """Sync calls, but the twins of our backend over Redis: it does the same over both engines. The twins of the others
    are Django's general ones."""
    return Api(kind, twins=kind == "redis")


Case = Callable[[Api], AsyncGenerator[None]]
EXPIRING: list[Case] = []


def expiring(case: Case) -> Case:
    """A case of `test_when_the_time_is_over`."""
    EXPIRING.append(case)
    return case


# --- get and set -----------------------------------------------------------------------------------------------------


async def test_get_of_a_missing_key(api: Api) -> None:
    assert await api.get("k") is None
    assert await api.get("k", "default") == "default"
    assert await api.get("k", default=3) == 3


async def test_set_and_get(api: Api) -> None:
    assert await api.set("k", "first") is not False
    assert await api.get("k") == "first"
    await api.set("k", "second")
    assert await api.get("k") == "second"
    assert await api.get("k") == "second"


async def test_values_come_back_as_they_were(api: Api) -> None:
    for number, value in enumerate(VALUES):
        if api.kind == "django-redis" and value == "\ud800":
            value = "text"  # it raises a different error
        await api.set(f"k{number}", value)
        for _ in range(3):  # from each level
            reply = await api.get(f"k{number}", "missing")
            assert reply == value
            assert type(reply) is type(value)


async def test_a_stored_none_differs_from_a_missing_key(api: Api) -> None:
    await api.set("k", None)
    assert await api.get("k", "default") is None
    assert await api.has_key("k") is True
    assert await api.add("k", 1) is False


async def test_readers_cannot_change_cached_values(api: Api) -> None:
    originals: list[Any] = [[1], {"a": 1}, {"a": [1]}, [{"a": 1}], {1}, ([1],)]
    for original in originals:
        value = copy.deepcopy(original)
        await api.set("k", value)
        empty(value)
        for _ in range(4):  # from each level
            reply = await api.get("k")
            assert reply == original
            empty(reply)


def empty(value: Any) -> None:
    """Change all that can be changed in it."""
    if isinstance(value, list | tuple | dict):
        for item in list(value.values() if isinstance(value, dict) else value):
            empty(item)
    if hasattr(value, "clear"):
        value.clear()


# --- add, get_or_set, has_key, in ------------------------------------------------------------------------------------


async def test_add_stores_only_missing_keys(api: Api) -> None:
    assert await api.add("k", "first") is True
    assert await api.add("k", "second") is False
    assert await api.get("k") == "first"
    await api.delete("k")
    assert await api.add("k", "third") is True
    assert await api.get("k") == "third"


async def test_get_or_set(api: Api) -> None:
    assert await api.get_or_set("k", "value", 100) == "value"
    assert await api.get_or_set("k", "other", 100) == "value"
    assert await api.get_or_set("called", lambda: [1]) == [1]
    assert await api.get_or_set("called", lambda: 1 / 0) == [1], "the callable must not run"
    assert await api.get_or_set("none", None) is None
    assert await api.get("none", "default") is None
    assert await api.get_or_set("version", "of 2", version=2) == "of 2"
    assert await api.get("version") is None


async def test_has_key_and_in(api: Api) -> None:
    assert await api.has_key("k") is False
    assert "k" not in api.cache
    await api.set("k", 0)
    assert await api.has_key("k") is True
    assert "k" in api.cache
    assert await api.has_key("k", version=2) is False


# --- many ------------------------------------------------------------------------------------------------------------


async def test_set_many_and_get_many(api: Api) -> None:
    assert not await api.set_many({"a": 1, "b": None, "c": [3]})
    assert await api.get_many(["a", "b", "c", "d"]) == {"a": 1, "b": None, "c": [3]}
    assert await api.get_many(iter(["c"])) == {"c": [3]}
    assert await api.get_many([]) == {}
    assert await api.get_many(["a"], version=2) == {}
    assert not await api.set_many({})


async def test_delete_and_delete_many(api: Api) -> None:
    await api.set_many({"a": 1, "b": 2, "c": 3, "d": 4})
    assert await api.delete("a") is True
    assert await api.delete("a") is False
    assert await api.get("a") is None
    await api.delete_many(["b", "c", "absent"])
    assert await api.get_many(["a", "b", "c", "d"]) == {"d": 4}
    await api.delete_many([])


async def test_clear(api: Api) -> None:
    await api.set_many({"a": 1, "b": "text"})
    await api.set("c", 3, version=2)
    assert await api.get("b") == "text"
    await api.clear()
    assert await api.get_many(["a", "b"]) == {}
    assert await api.get("c", version=2) is None
    assert await api.add("a", 2) is True


# --- numbers ---------------------------------------------------------------------------------------------------------


async def test_incr_and_decr(api: Api) -> None:
    await api.set("n", 1)
    assert await api.incr("n") == 2
    assert await api.get("n") == 2
    assert await api.incr("n", 10) == 12
    assert await api.incr("n", -3) == 9
    assert await api.decr("n") == 8
    assert await api.decr("n", 5) == 3
    assert await api.decr("n", 10) == -7
    assert await api.get("n") == -7
    await api.set("n", "text")
    assert await api.get("n") == "text"
    await api.set("n", 5)
    assert await api.incr("n") == 6


async def test_incr_of_a_missing_key(api: Api) -> None:
    for call in (api.incr, api.decr):
        with pytest.raises(ValueError, match="n"):
            await call("n")
    assert await api.get("n") is None


async def test_incr_of_a_text(api: Api) -> None:
    """Not documented. Ours and locmem: TypeError; django-redis: an error of Redis."""
    await api.set("n", "text")
    with pytest.raises(TypeError if api.kind != "django-redis" else Exception):
        await api.incr("n")
    assert await api.get("n") == "text"


async def test_incr_of_a_fraction(api: Api) -> None:
    """Not documented. django-redis refuses it."""
    if api.kind == "django-redis":
        return
    await api.set("n", 1.5)
    assert await api.incr("n", 2) == 3.5
    assert await api.get("n") == 3.5


# --- times -----------------------------------------------------------------------------------------------------------


async def test_no_time_is_not_cached(api: Api) -> None:
    for timeout in (0, -1, -0.5):
        await api.set("k", "old", 100)
        assert await api.get("k") == "old"
        await api.set("k", "new", timeout)
        assert await api.get("k") is None
        assert await api.add("k", "new", timeout) is True, "as nothing was there"
        assert await api.get("k") is None
        await api.set("k", "there", 100)
        assert await api.add("k", "new", timeout) is False
        assert await api.get("k") == "there"


async def test_times_without_end(api: Api) -> None:
    await api.set("none", 1, None)
    await api.set("long", "x", 60 * 60 * 24 * 365 * 10)
    await api.of("endless").set("endless", 1)
    assert await api.get_many(["none", "long", "endless"]) == {"none": 1, "long": "x", "endless": 1}


BRIEF = 1
"""Seconds, for a value that is to be there at first."""


@expiring
async def add_after_the_time_is_over(api: Api) -> AsyncGenerator[None]:
    assert await api.add("added", "first", 0.2) is True
    yield
    assert await api.add("added", "second", 100) is True
    assert await api.get("added") == "second"


@expiring
async def set_many_for_a_time(api: Api) -> AsyncGenerator[None]:
    await api.set_many({"a": 1, "b": "x"}, 0.2)
    await api.set_many({"c": 1}, 100)
    await api.set_many({"d": 1}, 0)
    yield
    assert await api.get_many(["a", "b", "c", "d"]) == {"c": 1}


@expiring
async def incr_after_the_time_is_over(api: Api) -> AsyncGenerator[None]:
    await api.set("number", 1, 0.2)
    yield
    with pytest.raises(ValueError, match="number"):
        await api.incr("number")


@expiring
async def incr_leaves_the_time_as_it_is(api: Api) -> AsyncGenerator[None]:
    """Not documented. Before Django 6.1, `aincr` of locmem and django-redis sets the time to live of the settings."""
    await api.set("counted", 1, BRIEF)
    assert await api.incr("counted") == 2
    yield
    assert await api.get("counted") is None


@expiring
async def after_its_time_it_is_gone(api: Api) -> AsyncGenerator[None]:
    await api.set("gone", "value", BRIEF - 0.25)
    await api.set("long", "value", 100.5)
    assert await api.get("gone") == "value"
    yield
    assert await api.get("gone") is None
    assert await api.has_key("gone") is False
    assert await api.delete("gone") is False
    assert await api.get("long") == "value"


@expiring
async def the_time_of_the_settings(api: Api) -> AsyncGenerator[None]:
    await api.of("dead").set("dead", 1)
    assert await api.get("dead") is None
    brief = api.of("brief")
    await brief.set("usual", "x")
    await brief.set("own", "x", 100)
    await brief.set("touched", "x", 100)
    assert await brief.touch("touched") is True
    yield
    assert await brief.get_many(["usual", "own", "touched"]) == {"own": "x"}


@expiring
async def touch(api: Api) -> AsyncGenerator[None]:
    assert await api.touch("absent", 100) is False
    values = {"text": "x", "number": 1, "object": {1}}
    for key, value in values.items():
        for name, before, after in (("longer", BRIEF, 100), ("shorter", 100, 0.3)):
            await api.set(f"{key}-{name}", value, before)
            assert await api.get(f"{key}-{name}") == value
            assert await api.touch(f"{key}-{name}", after) is True
            if after == 100:
                assert await api.get(f"{key}-{name}") == value
    yield
    for key, value in values.items():
        assert await api.get(f"{key}-longer") == value
        assert await api.get(f"{key}-shorter") is None


@expiring
async def touch_for_ever_and_for_no_time(api: Api) -> AsyncGenerator[None]:
    await api.set("forever", "x", BRIEF)
    assert await api.touch("forever", None) is True
    yield
    assert await api.get("forever") == "x"
    assert await api.touch("forever", 0) is True
    assert await api.get("forever") is None
    assert await api.touch("forever", 0) is False


async def test_when_the_time_is_over(api: Api) -> None:
    """Each case waits where it yields; all wait together."""
    cases = [case(api) for case in EXPIRING]
    try:
        for case in cases:
            await anext(case)
        time.sleep(BRIEF + 0.3)
        for case in cases:
            with pytest.raises(StopAsyncIteration):
                await anext(case)
    finally:
        for case in cases:
            await case.aclose()


# --- versions, prefixes, keys ----------------------------------------------------------------------------------------


async def test_versions_are_apart(api: Api) -> None:
    await api.set("k", "one")
    await api.set("k", "two", version=2)
    assert await api.get("k") == "one"
    assert await api.get("k", version=1) == "one"
    assert await api.get("k", version=2) == "two"
    assert await api.of("second").get("k") == "two"
    assert await api.of("second").get("k", version=1) == "one"
    assert await api.delete("k", version=2) is True
    assert await api.get("k") == "one"
    await api.set("n", 1, version=2)
    assert await api.incr("n", version=2) == 2
    with pytest.raises(ValueError, match="n"):
        await api.incr("n")


async def test_incr_version(api: Api) -> None:
    await api.set("k", "x")
    assert await api.incr_version("k") == 2
    assert await api.get("k") is None
    assert await api.get("k", version=2) == "x"
    assert await api.incr_version("k", 3, version=2) == 5
    assert await api.decr_version("k", version=5) == 4
    assert await api.get("k", version=4) == "x"
    second = api.of("second")
    await second.set("l", "y")
    assert await second.decr_version("l") == 1
    assert await api.get("l") == "y"
    for call in (api.incr_version, api.decr_version):
        with pytest.raises(ValueError, match="absent"):
            await call("absent")


async def test_prefixes_are_apart(api: Api) -> None:
    prefixed = api.of("prefixed")
    await api.set("k", "x")
    await prefixed.set("k", "y")
    assert (await api.get("k"), await prefixed.get("k")) == ("x", "y")
    assert await prefixed.delete("k") is True
    assert await api.get("k") == "x"


async def test_a_key_function(api: Api) -> None:
    shouting = api.of("shouting")
    await shouting.set("k", "x")
    assert await shouting.get("K") == "x"
    assert shouting.cache.make_key("k") == "1//K"
    assert await api.get("k") is None


async def test_keys_of_other_types(api: Api) -> None:
    await api.set(7, "number")
    assert await api.get(7) == await api.get("7") == "number"


async def test_keys_that_memcached_would_not_take(api: Api) -> None:
    """The caches that Django has warn of them. django-redis does not. All store them."""
    for key in ("with space", "x" * 250, "tab\there"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await api.set(key, "x")
            assert await api.get(key) == "x"
        key_warnings = [warning for warning in caught if warning.category is CacheKeyWarning]
        assert bool(key_warnings) == (api.kind != "django-redis"), key


async def test_long_keys_and_large_values(api: Api) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheKeyWarning)
        for key, value in (("x" * 5000, "y"), ("large", "z" * 500_000), ("x" * 5001, {1, 2})):
            await api.set(key, value)
            assert await api.get(key) == value
            assert await api.touch(key, 100) is True
            assert await api.get(key) == value
            assert await api.delete(key) is True
            assert await api.get(key) is None
