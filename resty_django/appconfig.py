"""The base class of this package's apps, which declare as attributes what they register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from django.apps import AppConfig
from django.core import checks
from django.utils.functional import Promise
from django.utils.module_loading import import_string


@dataclass(frozen=True, kw_only=True)
class Part:
    """A component with health probes and an overview panel, in the modules `health` and `overview` of its folder.

    These modules define `health.probe`, `overview.panel` and `overview.families`, and are imported on first use.
    `module`: dotted path of the folder ("": the app's). For the other fields see `resty_django.overview.Panel`.
    """

    name: str
    title: str | Promise
    permissions: tuple[str, ...]
    module: str = ""
    page: str = ""
    order: int = 100
    database: bool = False


class RestyAppConfig(AppConfig):
    """The base class of this package's apps. A subclass that overrides `ready` must call `super().ready()` first."""

    system_checks: ClassVar[tuple[str, ...]] = ("resty_django.checks.check_core",)
    """Dotted paths of check functions."""
    deploy_checks: ClassVar[tuple[str, ...]] = ()
    """The same, for `manage.py check --deploy` only. They call no server."""
    probes: ClassVar[Mapping[str, str]] = {}
    """Dotted paths of further health probes, by name."""
    parts: ClassVar[tuple[Part, ...]] = ()

    def ready(self) -> None:
        from resty_django import health
        from resty_django.callables import deferred

        for path in self.system_checks:
            checks.register(import_string(path), "resty_django")  # the tag
        for path in self.deploy_checks:
            checks.register(import_string(path), "resty_django", deploy=True)
        for name, path in self.probes.items():
            health.register(name, deferred(path))
        for part in self.parts:
            self._register(part)

    def _register(self, part: Part) -> None:
        from resty_django import health, metrics, overview
        from resty_django.callables import deferred

        module = part.module or self.name
        health.register(part.name, deferred(f"{module}.health.probe"))
        panel = overview.Panel(
            part.name,
            part.title,
            deferred(f"{module}.overview.panel"),
            permissions=part.permissions,
            page=part.page,
            app=self.name,
            database=part.database,
            order=part.order,
        )
        overview.register(panel)
        metrics.register(part.name, deferred(f"{module}.overview.families"), app=self.name, database=part.database)
