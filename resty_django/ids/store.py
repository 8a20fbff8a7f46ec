"""Counters in the database: each reservation is one conditional UPDATE, committed before a number is given out.

Everything here except `take_in_transaction` must run in autocommit, on a connection that no caller's transaction
owns; the desk's thread and the stop of the service see to that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from django.db import IntegrityError, connections, router, transaction
from django.db.models import F
from django.utils import timezone

from resty_django.conf import conf

from .engine.counter import Clock
from .engine.cycle import Cycle
from .engine.moment import wall_at
from .engine.rule import RuleSpec
from .engine.segment import Grant, Row, give_back, reserve
from .errors import StepChanged, TooFast, TooManyNames, Unavailable, UnknownRule
from .models import IdCounter, IdRule

_TRIES = 100


class Position(NamedTuple):
    """Where a counter stands: the last number reserved, and its node."""

    counter: int
    node_offset: int


@dataclass
class NameGate:
    """How many new names a second this process may make: a token bucket of one second's size."""

    rate: int
    tokens: float = 0.0
    then: float = -1.0

    def admit(self, now: float) -> None:
        """TooFast when the second's share is used up. `now` is monotonic seconds."""
        if not self.rate:
            return
        self.tokens = float(self.rate) if self.then < 0 else min(self.rate, self.tokens + (now - self.then) * self.rate)
        self.then = now
        if self.tokens < 1:
            raise TooFast(f"new application names come faster than {self.rate} a second (NEW_NAMES_PER_SECOND)")
        self.tokens -= 1


def database() -> str:
    """The alias of the database that holds rules and counters."""
    return conf.ids.database or router.db_for_write(IdCounter)


def position(rule_id: int, app: str) -> Position | None:
    """The stored position of a counter of this node; None when it has none."""
    row = IdCounter.objects.using(database()).filter(rule_id=rule_id, app_name=app, node_offset=conf.ids.offset).first()
    return Position(row.bound - row.step, row.node_offset) if row else None


class Store:
    """Reservations for the node that the settings name. `clock` gives epoch seconds."""

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock = clock
        self._gate: NameGate | None = None

    def reserve(self, rule_id: int, spec: RuleSpec, app: str, *, shown: int | None, want: int) -> Grant:
        """Take `want` numbers, or what the cycle has left, and commit that.

        Raises the engine's Exhausted and StepChanged, TooManyNames and TooFast for a new name, UnknownRule when the
        rule was deleted, and django.db.Error when the database does not answer.
        """
        alias, ids = database(), conf.ids
        if connections[alias].in_atomic_block:
            raise RuntimeError("a reservation must not be part of a transaction")
        name = f"{spec.name}/{app}"
        for _ in range(_TRIES):
            wall = max(wall_at(self._clock(), spec.zone), shown if shown is not None else -(2**62))
            stored = _find(alias, rule_id, app, ids.offset)
            old = _row(stored) if stored else None
            new, grant = reserve(old, spec, wall=wall, step=ids.step, offset=ids.offset, want=want, name=name)
            if stored is None:
                if self._create(alias, rule_id, spec, app, new, grant):
                    return grant
            elif _swap(alias, stored, new, grant.numbers.start):
                return grant
            time.sleep(random.random() * 0.005)  # noqa: S311 (jitter)
        raise Unavailable(f"counter {name} is reserved from so often that this process did not get a turn")

    def give_back(self, rule_id: int, app: str, cycle: Cycle, tail: range, shown: int) -> bool:
        """Return the unused tail of a segment; False when somebody reserved after it."""
        alias = database()
        stored = _find(alias, rule_id, app, conf.ids.offset)
        new = give_back(_row(stored), cycle, tail, shown) if stored else None
        return stored is not None and new is not None and _swap(alias, stored, new)

    def _create(self, alias: str, rule_id: int, spec: RuleSpec, app: str, new: Row, grant: Grant) -> bool:
        if self._gate is None or self._gate.rate != conf.ids.new_names_per_second:
            self._gate = NameGate(conf.ids.new_names_per_second)
        self._gate.admit(time.monotonic())
        try:
            with transaction.atomic(using=alias):
                _create(alias, rule_id, spec, app, new, grant)
        except IntegrityError:
            return False
        return True


def take_in_transaction(
    rule: IdRule, spec: RuleSpec, app: str, *, alias: str, clock: Clock, use: Callable[[Grant], list[str]], want: int
) -> list[str]:
    """Take numbers inside the transaction open on `alias`, and make IDs of them with `use`; a rollback undoes both.

    The counter's row stays locked until that transaction ends, so that the next caller sees what became of it.
    """
    offset = conf.ids.offset
    mine = IdCounter.objects.using(alias).filter(rule_id=rule.pk, app_name=app, node_offset=offset)
    if not mine.update(updated_at=timezone.now()):
        _lock_rule(alias, rule.pk)
        mine.update(updated_at=timezone.now())  # locks the row if another transaction made it meanwhile
    stored = _find(alias, rule.pk, app, offset)
    wall = wall_at(clock(), spec.zone)
    name = f"{spec.name}/{app}"
    old = _row(stored) if stored else None
    new, grant = reserve(old, spec, wall=wall, step=conf.ids.step, offset=offset, want=want, name=name)
    made = use(grant)
    if stored is None:
        _create(alias, rule.pk, spec, app, new, grant)
    elif not _swap(alias, stored, new, grant.numbers.start):
        raise Unavailable(f"counter {name} moved inside this transaction; run it at READ COMMITTED, or again")
    return made


def _find(alias: str, rule_id: int, app: str, offset: int) -> IdCounter | None:
    return IdCounter.objects.using(alias).filter(rule_id=rule_id, app_name=app, node_offset=offset).first()


def _row(stored: IdCounter) -> Row:
    return Row(stored.step, Cycle(stored.cycle_start, stored.cycle_end), stored.bound, stored.shown)


def _swap(alias: str, stored: IdCounter, new: Row, first: int = 0) -> bool:
    """Write `new` if the row still is as `stored` was read; `first` is the number that a new cycle begins with."""
    now = timezone.now()
    turned = new.cycle.start >= stored.cycle_end
    return bool(
        IdCounter.objects.using(alias)
        .filter(
            pk=stored.pk,
            step=stored.step,
            bound=stored.bound,
            cycle_start=stored.cycle_start,
            cycle_end=stored.cycle_end,
            shown=stored.shown,
        )
        .update(
            step=new.step,
            bound=new.bound,
            shown=new.shown,
            cycle_start=new.cycle.start,
            cycle_end=new.cycle.end,
            updated_at=now,
            **({"cycle_began": now, "cycle_first": first} if turned else {}),
        )
    )


def _lock_rule(alias: str, rule_id: int) -> None:
    """Hold the rule's row until the transaction ends, which makes the count of names exact."""
    if not IdRule.objects.using(alias).filter(pk=rule_id).update(max_names=F("max_names")):
        raise UnknownRule("the rule was deleted")


def _create(alias: str, rule_id: int, spec: RuleSpec, app: str, new: Row, grant: Grant) -> None:
    _lock_rule(alias, rule_id)
    counters = IdCounter.objects.using(alias).filter(rule_id=rule_id)
    other = counters.filter(app_name=app).exclude(step=new.step).first()
    if other is not None:
        raise StepChanged(
            f"counter {other} was made with step {other.step} and this site is set to step {new.step}: set "
            "RESTY_DJANGO['IDS']['STEP'] back, or confirm the change with manage.py confirm_id_step"
        )
    allowed = IdRule.objects.using(alias).values_list("max_names", flat=True).get(pk=rule_id)
    if counters.values("app_name").distinct().count() >= allowed and not counters.filter(app_name=app).exists():
        raise TooManyNames(f"rule {spec.name} has its {allowed} application names; raise its max_names")
    IdCounter.objects.using(alias).create(
        rule_id=rule_id,
        app_name=app,
        node_offset=conf.ids.offset,
        step=new.step,
        bound=new.bound,
        cycle_start=new.cycle.start,
        cycle_end=new.cycle.end,
        shown=new.shown,
        cycle_began=timezone.now(),
        cycle_first=grant.numbers.start,
    )
