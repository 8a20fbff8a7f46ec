"""The interfaces of stores, and of the limiters that they decide for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, TypeVar

from msgspec import Struct

from ..algorithms import Algorithm, Outcome, StateOperation
from ..algorithms.protocol import Answers
from ..decision import Decision
from .circuit_breaker import CircuitBreaker

R = TypeVar("R")


class LimiterParts(Protocol):
    """The parts of a limiter that stores need; see `resty_django.limits.limiters.base`."""

    algorithm: ClassVar[Algorithm]
    give_back: ClassVar[StateOperation | None]
    clock: Callable[[], float] | None

    def now(self) -> int: ...
    def call_config(self) -> Struct: ...
    def step(self, commit: bool, cost: int, data: bytes | None) -> Outcome[Decision]: ...


class Revise(Protocol):
    """The method of a dictionary that changes the state of a key by a function, atomically, and returns its result."""

    def __call__(self, key: object, function: Callable[[bytes | None], Outcome[R]], /) -> R: ...


class Store(Protocol):
    """The interface of a store. Keys include the prefix of the limiter.

    `waits`: whether calls wait for a network. `revise`: the method of the dictionary in which a limiter may decide, or
    None.
    """

    waits: bool
    breaker: CircuitBreaker

    @property
    def revise(self) -> Revise | None: ...

    def decide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision: ...
    def change(
        self, limiter: LimiterParts, operation: StateOperation, key: object, config: Struct, cost: int
    ) -> float | None: ...
    def together(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers | None: ...
    def forget(self, key: object) -> bool: ...
    async def adecide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision: ...
    async def achange(
        self, limiter: LimiterParts, operation: StateOperation, key: object, config: Struct, cost: int
    ) -> float | None: ...
    async def atogether(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers | None: ...
    async def aforget(self, key: object) -> bool: ...
