"""People, panels that fail, and a site with dictionaries of its own, for the tests of overview and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

from resty_django import overview
from resty_django.metrics import sources
from resty_django.shdict import shdicts


@pytest.fixture(autouse=True)
def own_dictionaries(tmp_path: Path) -> Iterator[None]:
    """Each test begins with empty dictionaries."""
    named = {name: {"PATH": str(tmp_path / "dicts")} for name in ("default", "events", "limits")}
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": named}):
        yield
        shdicts.close_all()


@pytest.fixture(autouse=True)
def same_panels() -> Iterator[None]:
    """What a test registers is gone after it."""
    panels, metrics = dict(overview._panels), dict(sources._sources)
    yield
    overview._panels.clear()
    overview._panels.update(panels)
    sources._sources.clear()
    sources._sources.update(metrics)


@pytest.fixture
def boss() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


@pytest.fixture
def person() -> Callable[..., Client]:
    """A member of staff with these permissions, as `app_label.codename`, signed in."""

    def made(*names: str) -> Client:
        user = User.objects.create_user(f"user{User.objects.count()}", password="x", is_staff=True)
        for name in names:
            label, _, codename = name.partition(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=label, codename=codename))
        client = Client()
        client.force_login(user)
        return client

    return made
