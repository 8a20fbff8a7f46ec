"""Staff users and isolated panels and dictionaries for the tests of overview and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import WeakSet

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

from resty_django import overview
from resty_django.cache import MLCache, mlcaches
from resty_django.cache.mlcache import cache as cache_module
from resty_django.limits.statistics.reporter import stats
from resty_django.metrics import sources
from resty_django.shdict import shdicts
from tests.integration.limits.policy_tools import limits_site as limits_site
from tests.integration.qless.admin.conftest import jobs_site as jobs_site


@pytest.fixture(autouse=True)
def own_dictionaries(tmp_path: Path) -> Iterator[None]:
    """Start each test with empty dictionaries, and without the decisions of other tests."""
    stats.reset()
    named = {name: {"PATH": str(tmp_path / "dicts")} for name in ("default", "bans", "events", "limits")}
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": named}):
        yield
        shdicts.close_all()


@pytest.fixture(autouse=True)
def same_panels() -> Iterator[None]:
    """Remove what a test registers."""
    panels, metrics = dict(overview.registry), dict(sources.registry)
    yield
    overview.registry.clear()
    overview.registry.update(panels)
    sources.registry.clear()
    sources.registry.update(metrics)


@pytest.fixture
def person() -> Callable[..., Client]:
    """Return a function that makes a client of a staff user with permissions, given as `app_label.codename`."""

    def made(*names: str) -> Client:
        user = User.objects.create_user(f"user{User.objects.count()}", password="x", is_staff=True)
        for name in names:
            label, _, codename = name.partition(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=label, codename=codename))
        client = Client()
        client.force_login(user)
        return client

    return made


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> MLCache:
    """The default cache without values and counts of earlier tests; no other cache of this process is known."""
    cache = mlcaches["default"]
    monkeypatch.setattr(cache_module, "_live", WeakSet([cache]))
    cache.counter.after_fork()
    cache.update()  # a process that starts to listen to events empties L1 once
    cache.purge()
    return cache
