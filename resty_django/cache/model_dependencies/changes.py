"""Changes of rows, which become invalidated tags after the commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from django.db import connections, transaction
from django.db.models import ManyToManyField, Model

from resty_django.text import logger

from . import registry
from .registry import ANY_ROW, base_tag, row_tag

log = logger("resty_django.cache")

MAX_CHANGED_ROWS: Final = 100
"""Number of rows of a table with separate tags in a transaction; beyond that, all rows are invalidated."""

Changed = tuple[str, registry.Fields]
"""A label, and the fields of a dependency."""


class Changes:
    """The changes of one transaction, or of one savepoint. Calling it invalidates their tags.

    It waits for the commit once for each change, so that Django's `captureOnCommitCallbacks` finds it again for each of
    them; only the first call has an effect.
    """

    def __init__(self) -> None:
        self.rows: dict[Changed, set[Any] | None] = {}
        """Primary keys by dependency; None: unknown rows."""

    def add(self, changed: Changed, pks: Collection[Any] | None) -> None:
        rows = self.rows.setdefault(changed, set())
        if rows is not None and pks is not None and len(rows) + len(pks) <= MAX_CHANGED_ROWS:
            rows.update(pks)
        else:
            self.rows[changed] = None

    def tags(self, changed: Changed) -> list[str]:
        """Return the tags of a dependency that these changes invalidate."""
        base, pks = base_tag(*changed), self.rows[changed]
        return [base, *(row_tag(base, pk) for pk in ((ANY_ROW,) if pks is None else pks))]

    def invalidates(self, tags: frozenset[str]) -> bool:
        """Return whether one of these tags is going to be invalidated; see `are_uncommitted`."""
        return any(not tags.isdisjoint(self.tags(changed)) for changed in self.rows)

    def __call__(self) -> None:
        """Invalidate the tags in the caches with dependents. Errors are logged: the change has been committed."""
        from ..mlcache.registry import mlcaches  # only now: models import this module when the site starts

        tags_by_cache: dict[Any, list[str]] = {}
        for changed in self.rows:
            label, fields = changed
            for cache in registry.by_label[label].caches.get(fields, ()):
                tags_by_cache.setdefault(cache, []).extend(self.tags(changed))
        self.rows = {}
        for cache, tags in tags_by_cache.items():
            try:
                (mlcaches[cache] if isinstance(cache, str) else cache).invalidate_tags(*tags)
            except Exception as error:
                log.error("Values in the cache %s may be outdated: %s were not invalidated: %s", cache, tags, error)


def changed(
    model: type[Model],
    using: str,
    rows: Iterable[object] | None,
    fields: Collection[str] | None,
    new_or_deleted: bool = False,
) -> None:
    """Invalidate what depends on the rows, and on the many-to-many relations that they are part of.

    Arguments as in `rows_changed`. `new_or_deleted`: the rows are instances that were created or deleted; any other
    row of a relation may have connected other objects before.
    """
    instances = None if rows is None else list(rows)
    rows_changed(model, using, instances, fields)
    for relation in registry.relations.get(model, ()):
        for side, name in (
            (relation.model, relation.m2m_field_name()),
            (relation.related_model, relation.m2m_reverse_field_name()),
        ):
            key: Any = model._meta.get_field(name)
            known = new_or_deleted and instances is not None and key.target_field.primary_key
            pks = [getattr(instance, key.attname) for instance in instances or ()] if known else None
            rows_changed(side, using, pks, names_of(relation))


def rows_changed(model: type[Model], using: str, rows: Iterable[object] | None, fields: Collection[str] | None) -> None:
    """Invalidate what depends on the rows after the commit of the current transaction; at once without one.

    `using`: the alias of the database. `rows`: instances, or primary keys (None: unknown rows). `fields`: the names of
    the changed fields, or of their columns (None: all).
    """
    models = registry.models_of(model)
    if not models:
        return
    names = None if fields is None else _field_names(model, fields)
    instances = None if rows is None else list(rows)
    changes: Changes | None = None
    for label, dependent in models.items():
        for dependency_fields in registry.by_label[label].caches:
            if dependency_fields is None or names is None or not dependency_fields.isdisjoint(names):
                changes = changes or _current(using)
                pks = None if instances is None else _pks(instances, model, dependent)
                changes.add((label, dependency_fields), pks)
    if changes is None:
        return
    connection = connections[using]
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(changes, using=using, robust=True)
    else:  # the site manages transactions itself, so nobody knows when it commits
        changes()


def names_of(relation: ManyToManyField[Any, Any]) -> tuple[str, str]:
    """Return the names that a many-to-many field has on both sides."""
    return relation.name, relation.remote_field.name


def _field_names(model: type[Model], names: Collection[str]) -> set[str]:
    return {*names, *(field.name for field in model._meta.concrete_fields if field.attname in names)}


def _pks(rows: list[Any], model: type[Model], dependent: type[Model]) -> list[Any] | None:
    """Return the primary keys that rows of `model` have in `dependent`; None if one is unknown, as after `bulk_create`
    on some databases."""
    same = _share_keys(model, dependent) or _share_keys(dependent, model)
    pks: list[Any] = []
    for row in rows:
        if isinstance(row, dependent):
            pks.append(row._get_pk_val(dependent._meta))
        else:
            pks.append((row.pk if isinstance(row, Model) else row) if same else None)
    return None if None in pks else pks


def _share_keys(child: Any, parent: Any) -> bool:
    """Return whether a model inherits from another, and its primary key is the other's."""
    child, parent = child._meta.concrete_model, parent._meta.concrete_model
    links = (child, *child._meta.get_base_chain(parent)[:-1])
    return child is parent or (
        issubclass(child, parent) and all(model._meta.get_ancestor_link(parent).primary_key for model in links)
    )


def _current(using: str) -> Changes:
    """Return the changes of the current savepoint, which are committed or rolled back together."""
    connection = connections[using]
    if connection.in_atomic_block and connection.run_on_commit:
        savepoints, function, *_ = connection.run_on_commit[-1]
        if isinstance(function, Changes) and savepoints == set(connection.savepoint_ids):
            return function
    return Changes()
