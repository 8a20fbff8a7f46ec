"""Changes of rows, which become invalidated tags after the commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from django.db import connections, transaction
from django.db.models import Model

from resty_django.text import logger

from . import registry
from .tag_names import ANY_ROW, base_tag, row_tag

log = logger("resty_django.cache")

MOST_ROWS: Final = 100
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
        if rows is not None and pks is not None and len(rows) + len(pks) <= MOST_ROWS:
            rows.update(pks)
        else:
            self.rows[changed] = None

    def tags(self, changed: Changed) -> list[str]:
        """Return the tags of a dependency that these changes invalidate."""
        base, pks = base_tag(*changed), self.rows[changed]
        return [base, *(row_tag(base, pk) for pk in ((ANY_ROW,) if pks is None else pks))]

    def invalidates(self, tags: frozenset[str]) -> bool:
        """Return whether one of these tags is going to be invalidated; see `tags.uncommitted`."""
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


def changed(model: type[Model], using: str, rows: Iterable[Any] | None, fields: Collection[str] | None) -> None:
    """Invalidate what depends on the rows after the commit of the current transaction; at once without one.

    `using`: the alias of the database. `rows`: instances, or primary keys (None: unknown rows). `fields`: the names of
    the changed fields, or of their columns (None: all).
    """
    labels = registry.labels_of(model)
    if not labels:
        return
    names = None if fields is None else _field_names(model, fields)
    instances = None if rows is None else list(rows)
    changes: Changes | None = None
    for label in labels:
        for dependency_fields in registry.by_label[label].caches:
            if dependency_fields is None or names is None or not dependency_fields.isdisjoint(names):
                changes = changes or _current(using)
                changes.add((label, dependency_fields), None if instances is None else _pks(instances, label))
    if changes is None:
        return
    connection = connections[using]
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(changes, using=using, robust=True)
    else:  # the site manages transactions itself, so nobody knows when it commits
        changes()


def _field_names(model: type[Model], names: Collection[str]) -> set[str]:
    return {*names, *(field.name for field in model._meta.concrete_fields if field.attname in names)}


def _pks(instances: list[Any], label: str) -> list[Any] | None:
    """Return the primary keys; None if one is unknown, as after `bulk_create` on some databases."""
    pks = []
    for instance in instances:
        pk = instance
        if isinstance(instance, Model):
            opts = next(
                (parent._meta for parent in instance._meta.get_parent_list() if parent._meta.label_lower == label),
                instance._meta,
            )
            pk = instance._get_pk_val(opts)
        if pk is None:
            return None
        pks.append(pk)
    return pks


def _current(using: str) -> Changes:
    """Return the changes of the current savepoint, which are committed or rolled back together."""
    connection = connections[using]
    if connection.in_atomic_block and connection.run_on_commit:
        savepoints, function, *_ = connection.run_on_commit[-1]
        if isinstance(function, Changes) and savepoints == set(connection.savepoint_ids):
            return function
    return Changes()
