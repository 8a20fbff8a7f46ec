"""System checks of dependencies on models.

Checks:
    resty_cache.E003: A dependency of a cached value names a model that is not installed. Fix the name.
    resty_cache.E004: A dependency names a field that the model does not have, or one without a column. Depend on a
        field with a column.
    resty_cache.W003: Related objects of a dependency are changed through a manager that invalidates nothing. Derive
        it from `CacheInvalidatingManager`, or remove `base_manager_name`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model

from resty_django.address import see
from resty_django.text.suggestions import did_you_mean

from . import registry
from .querysets import CacheInvalidatingQuerySet

PAGE: Final = "docs/reference/cache/cache.md"


def check_dependencies(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return one message per problem."""
    messages: list[CheckMessage] = []
    for label, dependents in registry.by_label.items():
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError):
            messages += [_not_installed(label, origin) for _, origin in dict.fromkeys(dependents.origins)]
        else:
            for fields, origin in dict.fromkeys(dependents.origins):
                messages += _unknown_fields(model, fields, origin)
            if not isinstance(model._base_manager.all(), CacheInvalidatingQuerySet):
                messages.append(_silent_base_manager(model, dependents.origins[0][1]))
    return messages


def _not_installed(label: str, origin: str) -> Error:
    labels = [model._meta.label_lower for model in apps.get_models()]
    hint = did_you_mean(label, labels, "Add its app to INSTALLED_APPS, or correct the label.")
    return Error(
        f"{origin} depends on the model {label!r}, which is not installed.",
        hint=f"{hint} {see(PAGE)}".strip(),
        id="resty_cache.E003",
    )


def _unknown_fields(model: type[Model], fields: registry.Fields, origin: str) -> Iterator[Error]:
    for name in sorted(fields or ()):
        try:
            field = model._meta.get_field(name)
        except FieldDoesNotExist:
            names = [field.name for field in model._meta.get_fields()]
            hint = did_you_mean(name, names, f"It has {', '.join(names)}.")
            yield Error(
                f"{origin} depends on the field {name!r}, which {model._meta.label} does not have.",
                hint=f"{hint} {see(PAGE)}".strip(),
                id="resty_cache.E004",
            )
        else:
            if not (field.concrete or field.many_to_many):
                yield Error(
                    f"{origin} depends on the field {name!r} of {model._meta.label}, which has no column.",
                    hint=f"Depend on the model and the fields that store the relation. {see(PAGE)}".strip(),
                    id="resty_cache.E004",
                )


def _silent_base_manager(model: type[Model], origin: str) -> Warning:
    manager = model._base_manager.name
    return Warning(
        f"{origin} depends on {model._meta.label}, whose Meta.base_manager_name is {manager!r}. This manager does not "
        "invalidate what depends on rows that add() of related objects or SET_NULL changes.",
        hint=f"Derive it from CacheInvalidatingManager, or remove base_manager_name. {see(PAGE)}".strip(),
        id="resty_cache.W003",
    )
