"""Registry of the models on which values in caches depend, and the names of their tags; see the package."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from django.apps import apps
from django.db.models import ManyToManyField, Model

ANY_ROW: Final = "*"

Fields = frozenset[str] | None
Target = Any
"""An `MLCache`, or the name of one."""


@dataclass
class Dependents:
    """The dependents of a model. `caches`: the caches by the fields on which values in them depend (None: all)."""

    caches: dict[Fields, list[Target]] = field(default_factory=dict)
    origins: list[tuple[Fields, str]] = field(default_factory=list)
    """The fields and the function of each dependency, for messages."""


by_label: dict[str, Dependents] = defaultdict(Dependents)
"""The dependents by label in lower case."""

relations: dict[type[Model], set[ManyToManyField[Any, Any]]] = defaultdict(set)
"""The many-to-many fields that use a model as `through`. Only `signals.connect` adds to it."""


def add(label: str, fields: Fields, cache: Target, origin: str) -> None:
    """Register a dependency, and listen to changes of the model as soon as models are loaded."""
    dependents = by_label[label]
    caches = dependents.caches.setdefault(fields, [])
    if not any(listed is cache or listed == cache for listed in caches):
        caches.append(cache)
    dependents.origins.append((fields, origin))
    if apps.models_ready:
        listen(label)


def listen(label: str) -> None:
    """Listen to changes of a model, if it is installed, and of the models that share its rows."""
    from .signals import connect

    try:
        model = apps.get_model(label)
    except (LookupError, ValueError):  # reported by a system check
        return
    for candidate in apps.get_models(include_auto_created=True):
        if share_rows(candidate, model):
            connect(candidate)


def listen_to_all() -> None:
    """Listen to the models of all dependencies that were declared before models were loaded."""
    for label in list(by_label):
        listen(label)


def models_of(model: type[Model]) -> dict[str, type[Model]]:
    """Return the models with dependents that share rows with a model, by registered label."""
    models = {}
    for label in list(by_label):
        try:
            candidate = model._meta.apps.get_model(label)
        except (LookupError, ValueError):
            continue
        if share_rows(candidate, model):
            models[label] = candidate
    return models


def share_rows(first: type[Model], second: type[Model]) -> bool:
    """Return whether one of the models inherits the fields of the other, or is a proxy of it."""
    concrete: Any = first._meta.concrete_model
    other: Any = second._meta.concrete_model
    return issubclass(concrete, other) or issubclass(other, concrete)


def base_tag(label: str, fields: Fields) -> str:
    """Return the tag of a table, or of some of its fields. `label`: the model in lower case."""
    return f"model:{label}" if fields is None else f"model:{label}[{_shortened(','.join(sorted(fields)))}]"


def row_tag(base: str, pk: object) -> str:
    """Return the tag of a row. `base`: the tag of its table. `pk`: its primary key; `ANY_ROW`: unknown rows."""
    return f"{base}:{_shortened(str(pk))}"


def _shortened(text: str) -> str:
    """Return a primary key or the names of fields as they stand in a tag."""
    if len(text) <= 60 and text.isprintable():
        return text
    return "#" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
