"""The checks of `manage.py check --deploy`."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from pytest_django import Settings

from resty_django.limits.checks import check_proxies
from resty_django.shdict.lmdb import files

OURS = ("resty_django.W008", "resty_django.W009", "resty_limits.W005", "resty_qless.W004")


def deploy(*, include_deployment_checks: bool = True) -> dict[str, str]:
    """Return the messages of our tag for deployments, by ID and hint."""
    messages = checks.run_checks(tags=["resty_django"], include_deployment_checks=include_deployment_checks)
    return {str(message.id): str(message.msg) for message in messages if message.id in OURS}


@pytest.fixture(autouse=True)
def _production(settings: Settings) -> None:
    settings.RESTY_DJANGO = {}
    settings.SECURE_PROXY_SSL_HEADER = None


def test_a_site_without_faults() -> None:
    assert deploy() == {}


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    (
        "resty_django.W008",
        {"RESTY_DJANGO": {"LIMITS": {"PROXIES": ["10.0.0.0/8", "0.0.0.0/0"]}}},
        'RESTY_DJANGO["LIMITS"]["PROXIES"] contains all addresses',
    ),
    ("resty_django.W008", {"RESTY_DJANGO": {"LIMITS": {"EXEMPT_NETWORKS": ["::/0"]}}}, "EXEMPT_NETWORKS"),
    ("resty_django.W008", {"RESTY_DJANGO": {"TXID": {"PROXIES": ["::/0"]}}}, '"TXID"'),
    ("resty_django.W008", {"RESTY_DJANGO": {"METRICS": {"NETWORKS": ["0.0.0.0/0"]}}}, '"METRICS"'),
    (
        "resty_limits.W005",
        {"SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https")},
        "SECURE_PROXY_SSL_HEADER is set",
    ),
    ("resty_limits.W005", {"USE_X_FORWARDED_HOST": True}, "USE_X_FORWARDED_HOST is set"),
    ("resty_qless.W004", {"RESTY_DJANGO": {"QLESS": {"EAGER": True}}}, '["EAGER"] is for tests'),
    (
        "resty_qless.W004",
        {"TASKS": {"mail": {"BACKEND": "resty_django.qless.testing.django_tasks.DummyBackend"}}},
        "TASKS['mail'] is for tests",
    ),
]


@pytest.mark.parametrize(("number", "mistake", "text"), MISTAKES)
def test_a_mistake_is_reported_by_deploy_alone(
    settings: Settings, number: str, mistake: dict[str, Any], text: str
) -> None:
    for name, value in mistake.items():
        setattr(settings, name, value)
    messages = deploy()
    assert list(messages) == [number]
    assert text in messages[number]
    assert deploy(include_deployment_checks=False) == {}


def test_a_proxy_that_is_named_is_not_a_mistake(settings: Settings) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.RESTY_DJANGO = {"LIMITS": {"PROXIES": ["10.0.0.0/8"]}}
    assert check_proxies() == []


def test_dictionaries_larger_than_the_memory(settings: Settings, tmp_path: Path, monkeypatch: Any) -> None:
    memory = os.statvfs(files.MEMORY_FOLDER)
    size = memory.f_blocks * memory.f_frsize
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"pages": {"SIZE": size}}}
    text = deploy()["resty_django.W009"]
    assert "but /dev/shm has only" in text
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"pages": {"SIZE": size, "PATH": str(tmp_path)}}}
    assert deploy() == {}
    monkeypatch.setattr(files, "MEMORY_FOLDER", tmp_path / "missing")
    assert "missing cannot be written" in deploy()["resty_django.W009"]
    settings.RESTY_DJANGO = {"SHARED_DICTS": {name: {"PATH": str(tmp_path)} for name in _names()}}
    assert deploy() == {}


def _names() -> list[str]:
    from resty_django.conf import conf

    return list(conf.shared_dicts)


def test_wrong_settings_do_not_break_them(settings: Settings) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.RESTY_DJANGO = {"SHARED_DICTS": 7, "LIMITS": {"PROXIES": 7}, "QLESS": {"EAGER": "x"}, "TXID": 7}
    assert deploy() == {}


def test_they_call_no_server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:9/0"}}
    settings.RESTY_DJANGO = {"QLESS": {"URL": "redis://127.0.0.1:9/1"}, "SHARED_DICTS": {"d": {"ENGINE": "redis"}}}
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: called.append(address))
    deploy()
    assert called == []
