"""Conversion of model instances, without the objects that they refer to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.db.models import Model
from django.db.models.fields.files import FieldFile


def to_stored(instance: Model, convert: Callable[[Any, str], Any]) -> list[Any]:
    """Return the content of an instance: the values of its loaded fields, and annotations.

    Related objects that were loaded with it, as by `select_related`, are loaded again on access. `convert`: returns
    the stored form of a value; it takes the value and its path, and raises for unsupported values.
    """
    kind = type(instance)
    attributes = instance.__dict__
    names = [field.attname for field in kind._meta.concrete_fields if field.attname in attributes]
    others = [name for name in attributes if name not in names and _is_annotation(name, kind)]
    return [
        kind._meta.label_lower,
        fingerprint(kind),
        instance._state.db,
        instance._state.adding,
        names,
        [convert(_plain_file(attributes[name]), f".{name}") for name in names],
        {name: convert(attributes[name], f".{name}") for name in others},
    ]


def from_stored(content: list[Any]) -> Model:
    """Return the instance. Raise `ValueError` if the model is not installed or has other fields now."""
    label, stored_fingerprint, alias, adding, names, values, others = content
    try:
        kind: type[Model] = apps.get_model(label)
    except (LookupError, ValueError):
        raise ValueError(f"the model {label!r} is not installed") from None
    if fingerprint(kind) != stored_fingerprint:
        raise ValueError(f"the fields of the model {label!r} have changed")
    fields = {field.attname for field in kind._meta.concrete_fields}
    if (
        not fields.issuperset(names)
        or len(names) != len(values)
        or not all(_is_annotation(name, kind) for name in others)
    ):
        raise ValueError(f"the fields do not fit the model {label!r}")
    by_field = dict(zip(names, values, strict=True))
    instance: Model = kind.from_db(alias, names, list(by_field.values()))
    instance._state.adding = adding
    for name, value in others.items():
        setattr(instance, name, value)
    return instance


def _is_annotation(name: str, kind: type[Model]) -> bool:
    """Return whether an attribute is the value of `annotate()` rather than a cached property or internal."""
    return not name.startswith("_") and not hasattr(kind, name)


@lru_cache(maxsize=1024)
def fingerprint(kind: type[Model]) -> bytes:
    """Return a digest of the names and the types of a model's fields."""
    fields = [f"{field.attname}:{field.get_internal_type()}" for field in kind._meta.concrete_fields]
    return hashlib.blake2b("\0".join(fields).encode(), digest_size=8).digest()


def _plain_file(value: object) -> Any:
    return value.name if isinstance(value, FieldFile) else value
