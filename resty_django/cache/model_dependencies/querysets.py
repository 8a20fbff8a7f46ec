"""Manager and querysets whose bulk operations invalidate what depends on their model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from django.db import models

from .changes import changed

M = TypeVar("M", bound=models.Model)
Method = TypeVar("Method", bound=Callable[..., object])


def _alters_data(method: Method) -> Method:
    """Keep templates from calling the method."""
    vars(method)["alters_data"] = True
    return method


class CacheInvalidatingQuerySet(models.QuerySet[M]):
    """A queryset whose `update`, `bulk_create` and `bulk_update` invalidate what depends on the model.

    Their async twins do the same. For `delete`, Django sends a signal for each row. Base managers that Django creates
    for models with dependents use it, too.
    """

    _in_bulk_update = False

    @_alters_data
    def update(self, **kwargs: object) -> int:
        rows = super().update(**kwargs)
        if rows and not self._in_bulk_update:
            changed(self.model, self.db, None, kwargs)
        return rows

    @_alters_data
    def bulk_create(self, objs: Iterable[M], *args: Any, **kwargs: Any) -> list[M]:
        instances = super().bulk_create(objs, *args, **kwargs)
        if instances:
            updates = len(args) > 2 or kwargs.get("update_conflicts")  # existing rows, whose keys may be unknown
            changed(self.model, self.db, None if updates else instances, None, new_or_deleted=not updates)
        return instances

    @_alters_data
    def bulk_update(self, objs: Iterable[M], fields: Sequence[str], batch_size: int | None = None) -> int:  # type: ignore[override]
        instances = tuple(objs)
        quiet = self._chain()  # type: ignore[attr-defined]
        quiet._in_bulk_update = True
        rows: int = super(CacheInvalidatingQuerySet, quiet).bulk_update(instances, fields, batch_size)
        if instances:
            changed(self.model, quiet.db, instances, fields)
        return rows

    def _clone(self) -> Any:
        clone = super()._clone()  # type: ignore[misc]
        clone._in_bulk_update = self._in_bulk_update
        return clone


class CacheInvalidatingManager(models.Manager.from_queryset(CacheInvalidatingQuerySet)[M]):  # type: ignore[misc]
    """A manager with `CacheInvalidatingQuerySet`: `objects = CacheInvalidatingManager()`."""
