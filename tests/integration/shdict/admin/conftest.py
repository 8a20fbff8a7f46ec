"""Dictionaries and people for the tests of the admin and of the health probe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, override_settings

from resty_django.shdict import SharedDict, shdicts
from tests.staff import signed_in

SIZE = 2 * 1024 * 1024


@pytest.fixture(name="person")
def _person() -> Callable[..., Client]:
    """Members of staff with permissions of the core app."""
    return partial(signed_in, "resty_django")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Configure the site with these dictionaries; without `default`, a small one in memory is added."""
    entered = []

    def dictionaries(caches: dict[str, Any] | None = None, **named: dict[str, Any]) -> None:
        named = {"default": {"SIZE": SIZE}, "events": {}, **named}
        for options in named.values():
            if options.get("ENGINE") != "redis":
                options.setdefault("PATH", tmp_path / "dictionaries")
        override = override_settings(
            RESTY_DJANGO={"SHARED_DICTS": named}, CACHES={"default": {"BACKEND": LOCMEM}, **(caches or {})}
        )
        override.enable()
        entered.append(override)

    yield dictionaries
    for override in reversed(entered):
        shdicts.close_all()
        override.disable()


LOCMEM = "django.core.cache.backends.locmem.LocMemCache"


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def dictionary(request: pytest.FixtureRequest, site: Callable[..., None]) -> SharedDict:
    """The dictionary `default`, on each engine."""
    if request.param == "redis":
        url = request.getfixturevalue("valkey_url")
        request.getfixturevalue("valkey")
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}
        site(caches={"store": cache}, default={"ENGINE": "redis", "ALIAS": "store"})
    else:
        site()
    return shdicts["default"]
