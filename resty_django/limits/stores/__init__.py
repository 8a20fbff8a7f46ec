"""Where states live: in a shared dictionary, on LMDB or Redis, or in the memory of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from django.core.signals import setting_changed

from resty_django.conf import conf
from resty_django.schema import SETTING
from resty_django.shdict import SharedDict, shdicts

from ..algorithms.protocol import Answers
from ..decision import Decision
from ..outage import Watch
from .direct import DirectStore
from .local import LocalStore

if TYPE_CHECKING:
    from ..limiter import Limiter, Operation


class Store(Protocol):
    """What limiters ask of a store. Keys have their prefix.

    `waits`: whether calls wait for a network. `revise`: that of the dictionary, where a limiter may decide in it.
    """

    waits: bool
    watch: Watch

    @property
    def revise(self) -> Callable[..., Any] | None: ...

    def decide(self, limiter: Limiter[Any], key: object, commit: bool, cost: int) -> Decision: ...
    def change(self, limiter: Limiter[Any], operation: Operation, key: object, numbers: Any, cost: float) -> Any: ...
    def together(self, limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> Answers | None: ...
    def forget(self, key: object) -> bool: ...
    async def adecide(self, limiter: Limiter[Any], key: object, commit: bool, cost: int) -> Decision: ...
    async def achange(
        self, limiter: Limiter[Any], operation: Operation, key: object, numbers: Any, cost: float
    ) -> Any: ...
    async def atogether(self, limiters: Sequence[Limiter[Any]], keys: Sequence[object]) -> Answers | None: ...
    async def aforget(self, key: object) -> bool: ...


_made: WeakValueDictionary[int, Store] = WeakValueDictionary()
"""By the `id` of the dictionary, which lives as long as its store."""


def store_of(dictionary: Any) -> Store:
    """The store in a shared dictionary or a `LocalStore`, one for each. Raises `TypeError` for anything else."""
    if not isinstance(dictionary, SharedDict | LocalStore):
        raise TypeError(f"store must be the name of a shared dictionary, a SharedDict or a LocalStore: {dictionary!r}.")
    found = _made.get(id(dictionary))
    return _made.setdefault(id(dictionary), _make(dictionary)) if found is None else found


def _make(dictionary: Any) -> Store:
    if isinstance(dictionary, SharedDict) and dictionary.engine == "redis":
        from .redis import RedisStore

        return RedisStore(dictionary)  # type: ignore[arg-type]
    return DirectStore(dictionary)


class Stores(dict[str | None, Store]):
    """The stores of the site by name; None is that of the setting LIMITS STORE."""

    def __missing__(self, name: str | None) -> Store:
        found = self[conf.limits.store] if name is None else store_of(shdicts[name])
        return self.setdefault(name, found)


STORES = Stores()


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {SETTING, "CACHES"}:
        STORES.clear()


setting_changed.connect(_forget, dispatch_uid="resty_django.limits.stores")

__all__ = ["STORES", "LocalStore", "Store", "Stores", "store_of"]
