"""A job queue on a real server, and API clients, for the tests of the API and the statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import override_settings
from redis import Redis
from rest_framework.test import APIClient

from resty_django.qless import Client
from resty_django.qless.clients.default import default_client


@pytest.fixture
def jobs(valkey: Redis, valkey_url: str) -> Iterator[Client]:
    """Return the client of the settings, on an empty server."""
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}
    plain = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(
        CACHES={"default": plain, "jobs": cache}, RESTY_DJANGO={"QLESS": {"ALIAS": "jobs", "WORKER_NAME": "w1"}}
    ):
        yield default_client()


@pytest.fixture
def person() -> Callable[..., APIClient]:
    """Return a function that makes an API client with permissions, given as `model.codename`."""

    def made(*names: str) -> APIClient:
        user = User.objects.create(username=f"user{User.objects.count()}")
        for name in names:
            model, _, codename = name.partition(".")
            kind, _ = ContentType.objects.get_or_create(app_label="resty_qless", model=model)
            permission, _ = Permission.objects.get_or_create(content_type=kind, codename=codename)
            user.user_permissions.add(permission)
        client = APIClient()
        client.force_authenticate(User.objects.get(pk=user.pk))
        return client

    return made


@pytest.fixture
def admin_api(admin_user: User) -> APIClient:
    """Return an API client of a superuser."""
    client = APIClient()
    client.force_authenticate(admin_user)
    return client
