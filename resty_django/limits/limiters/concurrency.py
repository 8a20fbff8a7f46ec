"""The limiter of concurrent requests."""

from __future__ import annotations

import random
from math import inf
from typing import ClassVar, Final, Unpack

from resty_django.processes.forks import after_fork

from ..algorithms import Algorithm, Outcome, StateOperation, concurrency
from ..algorithms.concurrency import ConcurrencyConfig
from ..decision import Decision
from ..errors import CostTooHigh
from . import descriptions
from .base import LOCAL_PREFIX, Limiter, LimiterOptions
from .slots import holds_slot
from .validation import check_cost, milliseconds, not_negative, positive, whole

MAX_LEASES: Final = 2**16
"""The maximum cost of a request whose slots have leases: together they take a mebibyte."""

_tokens = random.Random()  # noqa: S311 - names, not secrets
_bits = _tokens.getrandbits
after_fork(_tokens.seed)


class Concurrency(Limiter):
    """Limits to `max` concurrent requests, and `burst` more that must wait (`delay`), like nginx's `limit_conn`.

    `default_delay`: the assumed duration of a request in seconds, until `leaving` reports latencies to this object.
    Each recorded request holds a slot until `leaving`. `lease`: seconds after which an unreleased slot is free again
    (None: never, so that a killed process keeps its slots indefinitely). The holder can `renew` the lease. A lease
    takes 16 bytes of the state; with thousands of slots under one key, use None.
    """

    config: ConcurrencyConfig
    algorithm: ClassVar = Algorithm(
        lua="concurrency",
        incoming=concurrency.incoming,
        decide=concurrency.decide,
        can_pass=concurrency.can_pass,
        uncommit=StateOperation(concurrency.uncommit, "uncommit"),
    )
    _leaving: ClassVar = StateOperation(concurrency.leaving, "leaving")
    give_back: ClassVar[StateOperation | None] = _leaving
    _renew: ClassVar = StateOperation(concurrency.renew, "renew")

    def __init__(
        self,
        max: int,
        burst: int = 0,
        default_delay: float = 1.0,
        *,
        lease: float | None = 120.0,
        **options: Unpack[LimiterOptions],
    ) -> None:
        self.max = max
        self.burst = burst
        self.unit_delay = default_delay
        self.lease = lease
        self._committed = False
        super().__init__(**options)

    def _make_config(self) -> ConcurrencyConfig:
        positive("max", self.max)
        not_negative("burst", self.burst)
        whole("max", self.max)
        whole("burst", self.burst)
        positive("default_delay", self.unit_delay)
        lease = 0 if self.lease is None else milliseconds("lease", self.lease)
        return ConcurrencyConfig(self.max, self.burst, self.unit_delay, lease)

    def call_config(self, token: bytes | None = None) -> ConcurrencyConfig:
        config = self.config
        if token is None:
            token = _bits(64).to_bytes(8, "little") if config.lease else b""
        # since the last call, a latency may have changed the delay
        return ConcurrencyConfig(config.max, config.burst, self.unit_delay, config.lease, token)

    def decide_hit(self, data: bytes | None) -> Outcome[Decision]:
        return self.step(True, 1, data)  # each hit has its own token, so its own configuration

    def incoming(self, key: object, commit: bool = False, cost: int = 1) -> Decision:
        """Decide as in `Limiter`; the decision has the `token` of the slot."""
        self._committed = False
        decision = super().incoming(key, commit, cost)
        self._committed = commit and holds_slot(decision)
        return decision

    def hit(self, key: object, cost: int = 1) -> Decision:
        """Decide as in `Limiter`; the decision has the `token` of the slot."""
        self._committed = False
        decision = Limiter.hit(self, key, cost)
        self._committed = holds_slot(decision)
        return decision

    async def aincoming(self, key: object, commit: bool = False, cost: int = 1) -> Decision:
        """Run `incoming` without blocking the event loop."""
        self._committed = False
        decision = await super().aincoming(key, commit, cost)
        self._committed = commit and holds_slot(decision)
        return decision

    def check(self, cost: int) -> None:
        """Raise `CostTooHigh` as in `Limiter`, and for more leases than `MAX_LEASES`."""
        super().check(cost)
        if self.lease is not None and cost > MAX_LEASES:
            raise CostTooHigh(f"A cost of {cost} would take as many leases, more than {MAX_LEASES:,}. Set lease=None.")

    def is_committed(self) -> bool:
        """Return whether the last `incoming` of this object, in any thread, took a slot."""
        return self._committed

    def leaving(self, key: object, latency: float | None = None, token: str = "", cost: int = 1) -> int:
        """Release the slot with this token (without: the one held longest). Return the number in progress.

        `latency`: seconds that the request took, without its delay; other delays are adjusted to it. `cost`: the cost
        of the request, not needed with a token. A slot whose lease has ended is not released a second time. If the
        store cannot be used and `on_error` is not "raise", return 0; the slot is released when its lease ends. Raise
        `NotFound` if nothing is in progress under the key.
        """
        operation, cost = (self._leaving, 1) if cost == 1 else self._leaving_operation(token, cost)
        count = self._or_not_found(self._slot(operation, key, token, cost), key)
        if latency is not None:
            self._adjust_delay(latency)
        return int(count)

    async def aleaving(self, key: object, latency: float | None = None, token: str = "", cost: int = 1) -> int:
        """Run `leaving` without blocking the event loop."""
        operation, cost = (self._leaving, 1) if cost == 1 else self._leaving_operation(token, cost)
        count = self._or_not_found(await self._aslot(operation, key, token, cost), key)
        if latency is not None:
            self._adjust_delay(latency)
        return int(count)

    def _leaving_operation(self, token: str, cost: int) -> tuple[StateOperation, int]:
        """Return the operation that releases a slot, and its cost: a token stands for all slots of a request."""
        if token.removeprefix(LOCAL_PREFIX):
            return self._leaving, 1
        return self.algorithm.uncommit, check_cost(cost)

    def uncommit(self, key: object, cost: int = 1, token: str = "") -> int:
        """Release a slot like `leaving`, without a latency; without a token, release the slot taken last."""
        return int(self._or_not_found(self._slot(self.algorithm.uncommit, key, token, check_cost(cost)), key))

    async def auncommit(self, key: object, cost: int = 1, token: str = "") -> int:
        """Run `uncommit` without blocking the event loop."""
        result = await self._aslot(self.algorithm.uncommit, key, token, check_cost(cost))
        return int(self._or_not_found(result, key))

    def renew(self, key: object, token: str) -> bool:
        """Restart the lease of the slot. Return False if it has ended or the limiter has no leases."""
        return bool(self._slot(self._renew, key, token))

    async def arenew(self, key: object, token: str) -> bool:
        """Run `renew` without blocking the event loop."""
        return bool(await self._aslot(self._renew, key, token))

    def on_combined(self, decision: Decision | None) -> None:
        self._committed = decision is not None and decision.allowed

    def undo(self, key: object, token: str) -> None:
        self.uncommit(key, token=token)

    async def aundo(self, key: object, token: str) -> None:
        await self.auncommit(key, token=token)

    def _slot(self, operation: StateOperation, key: object, token: str, cost: int = 1) -> float | None:
        config = self._with_token(token)
        if LOCAL_PREFIX in token:
            return self.local.change(self, operation, self.key(key), config, cost)
        return self._change(operation, key, config, cost)

    async def _aslot(self, operation: StateOperation, key: object, token: str, cost: int = 1) -> float | None:
        config = self._with_token(token)
        if LOCAL_PREFIX in token:
            return self.local.change(self, operation, self.key(key), config, cost)
        return await self._achange(operation, key, config, cost)

    def _adjust_delay(self, latency: float) -> None:
        """Adjust the delay to the latency of a request."""
        unit_delay = (latency + self.unit_delay) / 2
        if 0 < unit_delay < inf:
            self.unit_delay = unit_delay
        else:
            self._set(unit_delay=unit_delay)  # raises

    def _with_token(self, token: str) -> ConcurrencyConfig:
        try:
            slot = bytes.fromhex(token.removeprefix(LOCAL_PREFIX))
        except ValueError:
            raise ValueError(f"token must be the token of a decision, not {token!r}.") from None
        return self.call_config(slot)

    def set_conn(self, max: int) -> None:
        """Change the maximum number of concurrent requests."""
        self._set(max=max)

    def set_burst(self, burst: int) -> None:
        """Change the maximum number of waiting requests."""
        self._set(burst=burst)

    def describe(self) -> str:
        return descriptions.concurrency(self.max, self.burst)
