"""Objects with versions: made again when the version is another, kept when only time has passed."""

from __future__ import annotations

import pytest

from resty_django.cache import VersionedLRU
from tests.dictionaries import Clock


class Maker:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self, *args: object) -> list[object]:
        self.made += 1
        return [*args]

    async def later(self, *args: object) -> list[object]:
        return self(*args)


@pytest.fixture(params=["call", "twin"])
def twins(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "twin")


async def fetch(cache: VersionedLRU, twins: bool, key: str, version: object, make: Maker, *args: object) -> object:
    if twins:
        return await cache.afetch(key, version, make.later, *args)
    return cache.fetch(key, version, make, *args)


async def test_the_same_object_while_the_version_is_the_same(twins: bool) -> None:
    clock, make = Clock(), Maker()
    cache = VersionedLRU(5, ttl=10, clock=clock)
    first = await fetch(cache, twins, "a", 1, make, "x")
    assert first == ["x"]
    assert await fetch(cache, twins, "a", 1, make, "y") is first
    clock.advance(10.001)
    assert cache.lru.get("a") is None, "expired"
    assert await fetch(cache, twins, "a", 1, make, "y") is first
    assert cache.lru.get("a") is not None, "with a new time to live"
    assert make.made == 1


async def test_another_version_is_made_again(twins: bool) -> None:
    clock, make = Clock(), Maker()
    cache = VersionedLRU(5, ttl=10, clock=clock)
    first = await fetch(cache, twins, "a", 1, make)
    second = await fetch(cache, twins, "a", 2, make)
    assert second is not first
    clock.advance(11)
    assert await fetch(cache, twins, "a", 1, make) is not second
    assert make.made == 3


async def test_an_error_goes_to_the_caller_and_nothing_is_stored(twins: bool) -> None:
    cache, make = VersionedLRU(5), Maker()
    first = await fetch(cache, twins, "a", 1, make)

    class Broken(Maker):
        def __call__(self, *args: object) -> list[object]:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await fetch(cache, twins, "a", 2, Broken())
    assert await fetch(cache, twins, "a", 1, make) is first


async def test_none_is_an_object_too(twins: bool) -> None:
    cache = VersionedLRU(5)
    created = []

    def make() -> None:
        created.append(1)

    async def amake() -> None:
        created.append(1)

    for _ in range(2):
        assert (await cache.afetch("a", 1, amake) if twins else cache.fetch("a", 1, make)) is None  # type: ignore[func-returns-value]
    assert len(created) == 1
