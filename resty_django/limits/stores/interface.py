"""The interfaces of stores, and of the limiters that they decide for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from ..algorithms import Algorithm, Decided, Operation
from ..algorithms.protocol import Answers
from ..decision import Decision
from .circuit_breaker import CircuitBreaker


class LimiterParts(Protocol):
    """The parts of a limiter that stores need; see `resty_django.limits.limiters.base`."""

    algorithm: ClassVar[Algorithm]
    give_back: ClassVar[Operation | None]
    clock: Callable[[], float] | None
    pure: Callable[..., Decided]
    decide_hit: Callable[[Any], Decided]

    def now(self) -> int: ...
    def call_numbers(self) -> Any: ...
    def step(self, commit: bool, cost: int, state: Any) -> Decided: ...


class Store(Protocol):
    """The interface of a store. Keys include the prefix of the limiter.

    `waits`: whether calls wait for a network. `revise`: the method of the dictionary in which a limiter may decide, or
    None.
    """

    waits: bool
    breaker: CircuitBreaker

    @property
    def revise(self) -> Callable[..., Any] | None: ...

    def decide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision: ...
    def change(self, limiter: LimiterParts, operation: Operation, key: object, numbers: Any, cost: float) -> Any: ...
    def together(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers | None: ...
    def forget(self, key: object) -> bool: ...
    async def adecide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision: ...
    async def achange(
        self, limiter: LimiterParts, operation: Operation, key: object, numbers: Any, cost: float
    ) -> Any: ...
    async def atogether(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers | None: ...
    async def aforget(self, key: object) -> bool: ...
