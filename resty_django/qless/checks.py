"""System checks of the job queue.

Checks:
    resty_qless.E001: The cache that `QLESS` names has no usable Redis. Name a cache on Redis, or set `URL`.
    resty_qless.E002: That cache is a cluster, and the prefix has no hash tag. Set `PREFIX` to a text such as
        `{jobs}ql:`.
    resty_qless.E003: A module in `MODULES` does not exist. Fix the name or remove it.
    resty_qless.E004: A backend for Django's tasks is configured, but the app is not installed. Add
        `resty_django.qless` to `INSTALLED_APPS`.
    resty_qless.E005: Such a backend has an unknown option, or a wrong `ON_COMMIT` or `OUTBOX`. The message names the
        options.
    resty_qless.E006: `QLESS` is set, but the package redis is not installed. Install the extra `redis`.
    resty_qless.E007: A task that workers refuse, because of its options, its name or its callbacks; they run the
        others. Fix the task.
    resty_qless.E008: A database of the outbox in which `DATABASE_ROUTERS` do not allow its table. Name another one,
        or change the router.
    resty_qless.W001: The package redis is not installed, but a cache uses Redis. Install the extra `redis` to run
        jobs.
    resty_qless.W002: The archive keeps jobs for a shorter time than Redis does. Keep them longer in the archive, or
        for a shorter time in Redis.
    resty_qless.W003: A module of tasks cannot be imported for another reason; its named and periodic tasks do not
        run. Fix the module.
    resty_qless.W004: With `--deploy`: `EAGER` or a backend for tests runs tasks where they are called, or not at all.
        Use it in tests only.
    resty_qless.I001: The package redis is not installed, so background jobs are unavailable; everything else works.
        Install the extra `redis` for jobs.

The backend for Django's tasks makes E004 and E005 itself.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from resty_django import extras
from resty_django.conf import conf, raw_section
from resty_django.conf.schema import key_text, see_key
from resty_django.conf.sections.qless import QlessSettings

from .errors import CLAUSE, QlessError

REFUSALS: Final = (TypeError, ValueError, QlessError)
"""Errors of wrong options of a task; others mean that its module cannot be imported for another reason."""


def check_qless(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check the section QLESS. Sites that have not set it may use no jobs, so they get an Info at most."""
    try:
        section = conf.qless
    except ImproperlyConfigured:
        return []  # the settings check reports it
    if not extras.is_installed("redis"):
        return [_missing_package(), *_modules(section)]
    if not raw_section("QLESS"):
        return []
    return [*_server(section), *_modules(section), *_archive(section), *_outbox(section)]


def check_tasks(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Check that workers can use the tasks of the site. Imports the modules of tasks."""
    if not raw_section("QLESS") or not extras.is_installed("redis"):
        return []
    from .clients.client import Client
    from .tasks.abandoned import is_gone
    from .tasks.schedule import faults

    messages: list[CheckMessage] = []
    with suppress(ImproperlyConfigured):  # the settings check reports it
        for name, error in faults(Client()):
            if not is_gone(name, error):  # else E003
                kind, number = (
                    (Error, "resty_qless.E007") if isinstance(error, REFUSALS) else (Warning, "resty_qless.W003")
                )
                text = f"Workers cannot use {name}. {type(error).__name__}: {error}"
                messages.append(kind(text, hint="Fix the task or its module.", id=number))
    return messages


def check_eager(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return a warning for each setting with which tasks do not become jobs."""
    try:
        names = [key_text(("QLESS", "EAGER"))] if conf.qless.eager else []
    except ImproperlyConfigured:
        return []  # the settings check reports it
    tests = "resty_django.qless.testing."
    for alias, backend in getattr(settings, "TASKS", {}).items():
        if str(backend.get("BACKEND")).startswith(tests):
            names.append(f"TASKS[{alias!r}]")
    text = "is for tests: tasks run where they are called, or not at all."
    hint = f"Remove it from the settings of production.{see_key(('QLESS', 'EAGER'))}"
    return [Warning(f"{name} {text}", hint=hint, id="resty_qless.W004") for name in names]


def _missing_package() -> CheckMessage:
    """Return an Error if jobs are configured, a Warning if a cache is on Redis that jobs could use, else an Info."""
    text = str(extras.MissingExtra(CLAUSE, "redis"))
    hint = f'Without jobs, remove "resty_django.qless" from INSTALLED_APPS.{see_key(("QLESS",))}'
    if raw_section("QLESS"):
        return Error(text, hint=see_key(("QLESS",)).strip() or None, id="resty_qless.E006")
    if any("redis" in str(cache.get("BACKEND", "")).lower() for cache in settings.CACHES.values()):
        return Warning(text, hint=hint, id="resty_qless.W001")
    return Info(text, hint=hint, id="resty_qless.I001")


def _server(section: QlessSettings) -> Iterator[CheckMessage]:
    if section.url is not None or section.eager:
        return  # with EAGER, tasks need no server
    from resty_django.redis.clients import cache_client

    try:
        redis_client = cache_client(section.alias)
    except ImproperlyConfigured as error:
        text = f"{key_text(('QLESS', 'ALIAS'))} names a cache without Redis. {error}"
        yield _error("resty_qless.E001", ("QLESS", "ALIAS"), text, "Name another cache, or set URL.")
        return
    if not extras.is_installed("django_redis"):
        return
    from resty_django.redis.cluster import ClusterClient

    if isinstance(redis_client, ClusterClient) and not re.search("{.+}", section.prefix):
        text = f"The cache {section.alias!r} is a cluster, but {key_text(('QLESS', 'PREFIX'))} has no hash tag."
        yield _error(
            "resty_qless.E002",
            ("QLESS", "PREFIX"),
            text,
            'Use a prefix such as "{jobs}ql:", so that all keys are in one slot.',
        )


def _modules(section: QlessSettings) -> Iterator[CheckMessage]:
    for module in section.modules:
        try:
            exists = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            exists = False
        if not exists:
            text = f"{key_text(('QLESS', 'MODULES'))} names the module {module!r}, which does not exist."
            yield _error("resty_qless.E003", ("QLESS", "MODULES"), text, "Fix the module name or remove it.")


def _archive(section: QlessSettings) -> Iterator[CheckMessage]:
    path = ("QLESS", "ARCHIVE", "RETENTION")
    failed = section.retention.failed or 0
    if section.archive.retention is not None and section.archive.retention < max(7 * 86_400, failed):
        text = f"{key_text(path)} is shorter than the time for which Redis keeps jobs: by default, complete ones "
        text += f"7 days and failed ones {key_text(('QLESS', 'RETENTION', 'FAILED'))}."
        hint = f'Use a longer time, such as "365d", or None for no archive.{see_key(path)}'
        yield Warning(text, hint=hint, id="resty_qless.W002")


def _outbox(section: QlessSettings) -> Iterator[CheckMessage]:
    from .models import OutboxEntry

    path = ("QLESS", "OUTBOX", "DATABASE")
    for alias in section.outbox.database if section.outbox.is_used else ():
        if not router.allow_migrate_model(alias, OutboxEntry):
            text = f"{key_text(path)} names {alias!r}, where DATABASE_ROUTERS do not allow its table."
            yield _error("resty_qless.E008", path, text, "Name another database, or allow the model OutboxEntry.")


def _error(number: str, path: tuple[str, ...], text: str, hint: str) -> Error:
    return Error(text, hint=f"{hint}{see_key(path)}", id=number)
