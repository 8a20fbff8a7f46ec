"""Stores of states: a shared dictionary in LMDB or Redis, or the memory of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.shdict import SharedDict, shdicts

from ..algorithms.decision import Decision
from ..algorithms.protocol import Answers
from .circuit_breaker import CircuitBreaker
from .direct import DirectStore
from .local import LocalStore

if TYPE_CHECKING:
    from ..limiters.base import Limiter, Operation


class Store(Protocol):
    """The interface of a store. Keys include the prefix of the limiter.

    `waits`: whether calls wait for a network. `revise`: the method of the dictionary in which a limiter may decide, or
    None.
    """

    waits: bool
    breaker: CircuitBreaker

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


_store_by_id: WeakValueDictionary[int, Store] = WeakValueDictionary()
"""Stores by the `id` of their dictionary, which lives as long as its store."""


def store_of(dictionary: Any) -> Store:
    """Return the store for a shared dictionary or a `LocalStore`, one for each. Raise `TypeError` for other types."""
    if not isinstance(dictionary, SharedDict | LocalStore):
        raise TypeError(
            f"store must be the name of a shared dictionary, a SharedDict or a LocalStore, not {dictionary!r}."
        )
    store = _store_by_id.get(id(dictionary))
    return _store_by_id.setdefault(id(dictionary), _make(dictionary)) if store is None else store


def _make(dictionary: Any) -> Store:
    if isinstance(dictionary, SharedDict) and dictionary.engine == "redis":
        from .redis import RedisStore

        return RedisStore(dictionary)  # type: ignore[arg-type]
    return DirectStore(dictionary)


class Stores(dict[str | None, Store]):
    """The stores of the site by name; None: the store in the setting LIMITS STORE."""

    def __missing__(self, name: str | None) -> Store:
        store = self[conf.limits.store] if name is None else store_of(shdicts[name])
        return self.setdefault(name, store)


STORES = Stores()


on_change(STORES.clear, SETTING, "CACHES")

__all__ = ["STORES", "LocalStore", "Store", "Stores", "store_of"]
