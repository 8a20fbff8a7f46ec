"""System checks of the job queue.

| id | meaning |
|---|---|
| `resty_qless.E001` | the cache that QLESS names has no Redis that could be used |
| `resty_qless.E002` | that cache is a cluster, and the prefix has no hash tag |
| `resty_qless.E003` | a module from which jobs may come does not exist |
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import QlessSettings, conf, raw_section
from resty_django.schema import anchor, key_text


def check_qless(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """What is wrong with the section QLESS; nothing where a site has not set it, and so uses no jobs perhaps."""
    try:
        section = conf.qless
    except ImproperlyConfigured:
        return []  # the check of the settings says so
    return [*_server(section), *_modules(section)] if raw_section("QLESS") else []


def _server(section: QlessSettings) -> Iterator[CheckMessage]:
    try:
        from resty_django.redis.clients import cache_client
        from resty_django.redis.cluster import ClusterClient
    except ImportError as error:
        yield _error(
            "resty_qless.E001", ("QLESS",), f"The job queue needs redis-py: {error}.", "Install resty-django[redis]."
        )
        return
    if section.url is not None:
        return
    try:
        found = cache_client(section.alias)
    except ImproperlyConfigured as error:
        text = f"{key_text(('QLESS', 'ALIAS'))} names a cache without Redis. {error}"
        yield _error("resty_qless.E001", ("QLESS", "ALIAS"), text, "Name another cache, or set URL.")
        return
    if isinstance(found, ClusterClient) and not re.search("{.+}", section.prefix):
        text = f"The cache {section.alias!r} is a cluster, but {key_text(('QLESS', 'PREFIX'))} has no hash tag."
        yield _error(
            "resty_qless.E002",
            ("QLESS", "PREFIX"),
            text,
            'Set it to "{jobs}ql:" or the like, so that all keys are in one slot.',
        )


def _modules(section: QlessSettings) -> Iterator[CheckMessage]:
    for module in section.modules:
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            there = False
        if not there:
            text = f"{key_text(('QLESS', 'MODULES'))} names the module {module!r}, which does not exist."
            yield _error("resty_qless.E003", ("QLESS", "MODULES"), text, "Mend the name, or take it away.")


def _error(number: str, path: tuple[str, ...], text: str, hint: str) -> Error:
    return Error(text, hint=f"{hint} See {anchor(path)}.", id=number)


def connect() -> None:
    register(check_qless, "resty_django")


__all__ = ["check_qless", "connect"]
