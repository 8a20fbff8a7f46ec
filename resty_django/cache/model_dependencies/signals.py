"""Receivers of Django's signals for models with dependents."""

from __future__ import annotations

from typing import Any, Final

from django.db.models import ManyToManyField, Model
from django.db.models.signals import m2m_changed, post_delete, post_save

from .changes import changed

M2M_ACTIONS: Final = frozenset({"post_add", "post_remove", "post_clear"})


def connect(model: type[Model]) -> None:
    """Listen to changes of a model and of its many-to-many relations. Connecting again has no effect."""
    post_save.connect(_saved, sender=model, dispatch_uid=_uid(model))
    post_delete.connect(_deleted, sender=model, dispatch_uid=_uid(model))
    for field in model._meta.get_fields(include_hidden=True):
        relation = getattr(field, "remote_field", None) if not isinstance(field, ManyToManyField) else field
        if isinstance(relation, ManyToManyField):
            through = relation.remote_field.through
            if through is not None:
                m2m_changed.connect(_relation_changed, sender=through, dispatch_uid=_uid(through))


def _uid(model: type[Model]) -> str:
    return f"resty_django.cache:{model._meta.label_lower}"


def _saved(
    sender: type[Model],
    instance: Model,
    created: bool,
    using: str,
    update_fields: frozenset[str] | None = None,
    **kwargs: Any,
) -> None:
    changed(sender, using, (instance,), None if created else update_fields)


def _deleted(sender: type[Model], instance: Model, using: str, **kwargs: Any) -> None:
    changed(sender, using, (instance,), None)


def _relation_changed(
    sender: type[Model],
    instance: Model,
    action: str,
    reverse: bool,
    model: type[Model],
    pk_set: set[Any] | None,
    using: str,
    **kwargs: Any,
) -> None:
    """Handle a change of a relation, which is a change of the rows on both sides."""
    if action not in M2M_ACTIONS or (pk_set is not None and not pk_set):
        return
    owner = model if reverse else type(instance)
    for field in owner._meta.many_to_many:
        if field.remote_field.through is sender:
            names = (field.name, field.remote_field.name)
            changed(type(instance), using, (instance,), names)
            changed(model, using, pk_set, names)
            return
