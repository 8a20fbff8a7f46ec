"""One course of action for sync and async code: decide, refuse or delay, run the view, tell, leave.

passage = guard.ask(request, kwargs)    None: no limit applies
passage.refuse()                        the response, where passage.refused
time.sleep(passage.delay)
passage.finish(view(request))           header fields, and the slots given back
passage.leave()                         where the view raised
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from . import keys
from .combining import acombine, combine
from .decision import CombinedDecision, Decision
from .errors import LimitError
from .passage import Limit, Passage
from .site import site

SHORTEST_SLEEP: Final = 0.001
"""Seconds: a shorter delay is none."""

Due: TypeAlias = list[tuple[Limit, str]]


class Guard:
    """Some limits that a request has to pass together, decided in one round trip where their store allows it.

    Limits of concurrency are asked last, whatever their place: they must not be probed twice.
    """

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._limits = sorted(limits, key=lambda limit: limit.holds)
        self._watching = any(limit.shadow for limit in self._limits)
        self._choosing = any(limit.methods or limit.when for limit in self._limits)
        self._exempting = any(limit.exemption for limit in self._limits)
        self._user = any(
            limit.key.needs_user or (limit.exemption and limit.exemption.permissions) for limit in self._limits
        )
        self._session = any(limit.key.needs_session for limit in self._limits)
        self._holding = any(limit.holds for limit in self._limits)
        self.plain = self._limits[0] if len(self._limits) == 1 and self._limits[0].plain else None
        """The only limit, where nothing but its key says whether it applies, and a decision is all there is to it."""

    def ask(self, request: Any, kwargs: Mapping[str, Any]) -> Passage | None:
        """Decide; None where no limit applies. Raises `StoreFailed` where the store is down and a limiter says so."""
        covering = self._covering(request)
        if not covering:
            return None
        if self._exempting:
            covering = [one for one in covering if one.exemption is None or not one.exemption.applies(request)]
        due = _keyed(covering, request, kwargs)
        if not due:
            return None
        passage = Passage(request)
        try:
            if self._watching:
                for limit, key in due:
                    if limit.shadow:
                        passage.note(limit, key, limit.limiter.hit(key, limit.cost_of(request)))
                due = [one for one in due if not one[0].shadow]
            self._decide(passage, due, request)
        except BaseException:
            passage.leave()
            raise
        return passage

    def _decide(self, passage: Passage, due: Due, request: Any) -> None:
        if len(due) == 1:
            limit, key = due[0]
            passage.note(limit, key, limit.limiter.hit(key, limit.cost_of(request)))
        elif due:
            costs = [limit.cost_of(request) for limit, _ in due]
            if any(cost != 1 for cost in costs):
                _one_by_one(passage, due, costs)
            else:
                _note_all(passage, due, combine(*_columns(due)))

    async def aask(self, request: Any, kwargs: Mapping[str, Any]) -> Passage | None:
        """As `ask`, without blocking."""
        covering = self._covering(request)
        if not covering:
            return None
        if self._user or self._session:
            await keys.load(request, self._user, self._session)
        if self._exempting:
            covering = [one for one in covering if one.exemption is None or not await one.exemption.aapplies(request)]
        due = _keyed(covering, request, kwargs)
        if not due:
            return None
        passage = Passage(request)
        if not self._holding:
            await self._anote(passage, due, request)
            return passage
        asking = asyncio.ensure_future(self._anote(passage, due, request))
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(_give_back(asking, passage)))
            raise
        except BaseException:
            await passage.aleave()
            raise
        return passage

    async def _anote(self, passage: Passage, due: Due, request: Any) -> None:
        if self._watching:
            for limit, key in due:
                if limit.shadow:
                    passage.note(limit, key, await limit.limiter.ahit(key, limit.cost_of(request)))
            due = [one for one in due if not one[0].shadow]
        await self._adecide(passage, due, request)

    async def _adecide(self, passage: Passage, due: Due, request: Any) -> None:
        if len(due) == 1:
            limit, key = due[0]
            passage.note(limit, key, await limit.limiter.ahit(key, limit.cost_of(request)))
        elif due:
            costs = [limit.cost_of(request) for limit, _ in due]
            if any(cost != 1 for cost in costs):
                await _aone_by_one(passage, due, costs)
            else:
                _note_all(passage, due, await acombine(*_columns(due)))

    def _covering(self, request: Any) -> Sequence[Limit]:
        here = site()
        if here.exempt is not None and here.clients.address(request) in here.exempt:
            return ()
        if not self._choosing:
            return self._limits
        return [limit for limit in self._limits if limit.covers(request)]


class EitherGuard(Guard):
    """Limits of which one has to let the request pass; all are asked each time."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        super().__init__(limits)
        self._watching = False  # one that only watches does so with the other

    def _decide(self, passage: Passage, due: Due, request: Any) -> None:
        decisions = [limit.limiter.hit(key, limit.cost_of(request)) for limit, key in due]
        _note_either(passage, due, decisions)

    async def _adecide(self, passage: Passage, due: Due, request: Any) -> None:
        decisions = [await limit.limiter.ahit(key, limit.cost_of(request)) for limit, key in due]
        _note_either(passage, due, decisions)


def _keyed(limits: Iterable[Limit], request: Any, kwargs: Mapping[str, Any]) -> Due:
    """The limits with the keys of the request, without those whose key says that they do not apply."""
    return [(limit, key) for limit in limits if (key := limit.key.of(request, kwargs)) is not None]


def _columns(due: Due) -> tuple[list[Any], list[str]]:
    return [limit.limiter for limit, _ in due], [key for _, key in due]


def _note_all(passage: Passage, due: Due, combined: CombinedDecision) -> None:
    """After a refusal, of the limit that refused alone: what the others had recorded was taken back."""
    for (limit, key), decision in zip(due, combined.decisions, strict=True):
        if decision is not None and (combined.allowed or not decision.allowed):
            passage.note(limit, key, decision)


def _one_by_one(passage: Passage, due: Due, costs: Sequence[int]) -> None:
    """`combine` knows no costs: one after the other, and a refusal takes back what those before it recorded."""
    taken: list[tuple[Limit, str, int, Decision]] = []
    for (limit, key), cost in zip(due, costs, strict=True):
        decision = limit.limiter.hit(key, cost)
        if not decision.allowed:
            for one, its_key, its_cost, its_decision in reversed(taken):
                with contextlib.suppress(LimitError):
                    if one.holds:
                        one.limiter.leaving(its_key, None, its_decision.token, its_cost)
                    else:
                        one.limiter.uncommit(its_key, its_cost)
            taken = []
        taken.append((limit, key, cost, decision))
        if not decision.allowed:
            break
    for limit, key, _, decision in taken:
        passage.note(limit, key, decision)


async def _aone_by_one(passage: Passage, due: Due, costs: Sequence[int]) -> None:
    taken: list[tuple[Limit, str, int, Decision]] = []
    for (limit, key), cost in zip(due, costs, strict=True):
        decision = await limit.limiter.ahit(key, cost)
        if not decision.allowed:
            for one, its_key, its_cost, its_decision in reversed(taken):
                with contextlib.suppress(LimitError):
                    if one.holds:
                        await one.limiter.aleaving(its_key, None, its_decision.token, its_cost)
                    else:
                        await one.limiter.auncommit(its_key, its_cost)
            taken = []
        taken.append((limit, key, cost, decision))
        if not decision.allowed:
            break
    for limit, key, _, decision in taken:
        passage.note(limit, key, decision)


def _note_either(passage: Passage, due: Due, decisions: Sequence[Decision]) -> None:
    found = sorted(zip(due, decisions, strict=True), key=lambda one: one[1].retry_after)
    for (limit, key), decision in [one for one in found if one[1].allowed] or found:
        passage.note(limit, key, decision)


async def _give_back(asking: asyncio.Future[None], passage: Passage) -> None:
    """Wait for decisions that nobody wants any more, and give back what they took."""
    await asyncio.wait([asking])
    await passage.aleave()


__all__ = ["SHORTEST_SLEEP", "EitherGuard", "Guard"]
