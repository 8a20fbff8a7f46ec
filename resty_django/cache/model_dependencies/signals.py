"""Receivers of Django's signals for models with dependents."""

from __future__ import annotations

from typing import Any

from django.db.models import (
    CASCADE,
    DO_NOTHING,
    PROTECT,
    RESTRICT,
    SET_NULL,
    ForeignKey,
    ManyToManyField,
    Model,
    QuerySet,
)
from django.db.models.signals import m2m_changed, post_delete, post_save

from . import registry
from .changes import changed, names_of, rows_changed
from .querysets import CacheInvalidatingQuerySet


def connect(model: type[Model]) -> None:
    """Listen to changes of a model and of its many-to-many relations. Connecting again has no effect.

    Django updates rows through `_base_manager` for `add` of related objects and for `SET_NULL`. A base manager that
    Django has created gets our queryset; others are left to a system check.
    """
    _connect_rows(model)
    base_manager: Any = model._base_manager
    if base_manager.auto_created and base_manager._queryset_class is QuerySet:
        base_manager._queryset_class = CacheInvalidatingQuerySet
    for field in model._meta.get_fields(include_hidden=True):
        relation = getattr(field, "remote_field", None) if not isinstance(field, ManyToManyField) else field
        if isinstance(relation, ManyToManyField):
            through = relation.remote_field.through
            if through is not None:
                registry.relations[through].add(relation)
                _connect_rows(through)
                if through._meta.auto_created:
                    _connect_deletions(field.related_model, model, names_of(relation))
        elif isinstance(field, ForeignKey):
            # These change no rows, send a signal for each row, or update rows by a queryset.
            signalled = (CASCADE, PROTECT, RESTRICT, DO_NOTHING, SET_NULL)
            if model._meta.auto_created or field.remote_field.on_delete not in signalled:
                _connect_deletions(field.related_model, model, None)


def _connect_rows(model: type[Model]) -> None:
    if not model._meta.auto_created:  # Django sends no signals for rows that it creates for a many-to-many field
        post_save.connect(_saved, sender=model, dispatch_uid=_uid(model))
        post_delete.connect(_deleted, sender=model, dispatch_uid=_uid(model))
    m2m_changed.connect(_relation_changed, sender=model, dispatch_uid=_uid(model))


def _connect_deletions(target: Any, model: type[Model], fields: tuple[str, ...] | None) -> None:
    """Listen to deletions in a model that change unknown rows of another one without a signal."""

    def deleted(using: str, **kwargs: object) -> None:
        rows_changed(model, using, None, fields)

    for sender in model._meta.apps.get_models():
        if issubclass(sender, target):
            post_delete.connect(deleted, sender=sender, dispatch_uid=f"{_uid(model)}:{fields}", weak=False)


def _uid(model: type[Model]) -> str:
    return f"resty_django.cache:{model._meta.label_lower}"


def _saved(
    sender: type[Model],
    instance: Model,
    created: bool,
    using: str,
    update_fields: frozenset[str] | None = None,
    **kwargs: object,
) -> None:
    changed(sender, using, (instance,), None if created else update_fields, new_or_deleted=created)


def _deleted(sender: type[Model], instance: Model, using: str, **kwargs: object) -> None:
    changed(sender, using, (instance,), None, new_or_deleted=True)


def _relation_changed(
    sender: type[Model],
    instance: Model,
    action: str,
    reverse: bool,
    model: type[Model],
    pk_set: set[Any] | None,
    using: str,
    **kwargs: object,
) -> None:
    """Handle a change of a relation, which is a change of the rows on both sides."""
    if action not in ("post_add", "post_remove", "post_clear") or (pk_set is not None and not pk_set):
        return
    owner = model if reverse else type(instance)
    for field in owner._meta.many_to_many:
        if field.remote_field.through is sender:
            rows_changed(type(instance), using, (instance,), names_of(field))
            rows_changed(model, using, pk_set, names_of(field))
            break
    rows_changed(sender, using, None, None)
