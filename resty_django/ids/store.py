"""Counters in the database: each reservation is one conditional UPDATE, committed before a number is issued.

Everything here except `take_in_transaction` must run in autocommit mode, on a connection without a transaction of a
caller; the reservation thread and `IdService.stop` ensure this.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from django.db import IntegrityError, connections, router, transaction
from django.db.models import F
from django.utils import timezone

from resty_django.conf import conf

from .engine.counter import Clock, Counter
from .engine.cycle import Cycle
from .engine.rule import RuleSpec
from .engine.segment import CounterRow, Grant, give_back, reserve
from .engine.wall_clock import wall_at
from .errors import IdError, StepChanged, TooFast, TooManyNames, Unavailable, UnknownRule
from .models import IdCounter, IdRule

SHORT_WINDOW, LONG_WINDOW = timedelta(days=2), timedelta(days=14)
"""The age at which the window of a forecast is halved: when a cycle ends, and within a cycle."""
MIN_RECOUNT_RATIO = 100
"""For a rule with too many names: the minimum ratio of the time between two counts to the time that a count takes."""
next_count: dict[int, float] = {}


class CounterPosition(NamedTuple):
    """A counter's position: the last number reserved or issued, and its node."""

    counter: int
    node_offset: int


@dataclass
class NameGate:
    """Limits the number of new names per second in this process: a token bucket with the size of one second."""

    rate: int
    tokens: float = 0.0
    then: float = -1.0

    def admit(self, now: float) -> None:
        """Raise TooFast if the tokens are used up. `now` is monotonic seconds."""
        if not self.rate:
            return
        self.tokens = float(self.rate) if self.then < 0 else min(self.rate, self.tokens + (now - self.then) * self.rate)
        self.then = now
        if self.tokens < 1:
            raise TooFast(
                f"New application names arrive faster than {self.rate} per second (NEW_NAMES_PER_SECOND). Try again."
            )
        self.tokens -= 1


def database() -> str:
    """Return the alias of the database with rules and counters."""
    return conf.ids.database or router.db_for_write(IdCounter)


def position(rule_id: int, app: str) -> CounterPosition | None:
    """Return the stored position of this node's counter, or None."""
    row = IdCounter.objects.using(database()).filter(rule_id=rule_id, app_name=app, node_offset=conf.ids.offset).first()
    return CounterPosition(row.bound - row.step, row.node_offset) if row else None


def positions(keys: Collection[tuple[int, str]]) -> dict[tuple[int, str], CounterPosition]:
    """Return the stored positions of this node's counters, by rule and application name, with one query."""
    rows = IdCounter.objects.using(database()).filter(
        rule_id__in={rule_id for rule_id, _ in keys}, app_name__in={app for _, app in keys}, node_offset=conf.ids.offset
    )
    return {
        (rule_id, app): CounterPosition(bound - step, offset)
        for rule_id, app, bound, step, offset in rows.values_list("rule_id", "app_name", "bound", "step", "node_offset")
        if (rule_id, app) in keys
    }


class CounterStore:
    """Reservations for the node named in the settings. `clock` returns epoch seconds."""

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock = clock
        self._gate: NameGate | None = None

    def _wall(self, spec: RuleSpec, shown: int | None) -> int:
        """Return the wall clock of a rule, which is never behind `shown`, the one that the caller last used."""
        wall = wall_at(self._clock(), spec.zone)
        return wall if shown is None else max(wall, shown)

    def reserve(
        self, rule_id: int, spec: RuleSpec, app: str, *, shown: int | None, want: int, issued: int = 0
    ) -> Grant:
        """Take `want` numbers, or all that the cycle has left, and commit the reservation.

        `issued`: the count of numbers that the caller has issued since it last reported them, for the forecast.

        Raise Exhausted, StepChanged, TooManyNames or TooFast (for a new name), UnknownRule if the rule was deleted, and
        django.db.Error if the database does not answer.
        """
        alias, ids = database(), conf.ids
        if connections[alias].in_atomic_block:
            raise RuntimeError("A reservation must not be part of a transaction. Call it outside transaction.atomic().")
        name = f"{spec.name}/{app}"
        for _ in range(100):
            wall = self._wall(spec, shown)
            stored = find_counter(alias, rule_id, app, ids.offset)
            old = row_of(stored) if stored else None
            new, grant = reserve(old, spec, wall=wall, step=ids.step, offset=ids.offset, want=want, name=name)
            if stored is None:
                self.admit()
                if _created(alias, rule_id, spec, app, new, grant):
                    return grant
            elif _swap(alias, stored, new, grant.numbers.start, issued):
                return grant
            time.sleep(random.random() * 0.005)  # noqa: S311 (jitter)
        raise Unavailable(f"Other processes reserve numbers of counter {name} too fast. Try again.")

    def give_back(self, rule_id: int, app: str, cycle: Cycle, tail: range, shown: int, issued: int = 0) -> bool:
        """Return the unused tail of a segment to the counter; False if numbers after it are already reserved.

        `issued` is as in `reserve`, and is reported in any case.
        """
        alias = database()
        stored = find_counter(alias, rule_id, app, conf.ids.offset)
        new = give_back(row_of(stored), cycle, tail, shown) if stored else None
        if stored is not None and new is not None and _swap(alias, stored, new, issued=issued):
            return True
        if stored is not None and issued:
            IdCounter.objects.using(alias).filter(pk=stored.pk).update(window_issued=F("window_issued") + issued)
        return False

    def admit(self) -> None:
        """Raise TooFast if new names arrive faster than the site allows; otherwise count one."""
        if self._gate is None or self._gate.rate != conf.ids.new_names_per_second:
            self._gate = NameGate(conf.ids.new_names_per_second)
        self._gate.admit(time.monotonic())

    def create_many(self, counters: Sequence[Counter]) -> list[Grant | IdError | None]:
        """Reserve the first segments of admitted names of one rule, in one transaction.

        Return for each a segment; an error, which concerns this name alone; or None if another process has created
        the counter. Raise django.db.Error if the database does not answer; then no counter is created.
        """
        alias, ids = database(), conf.ids
        results: list[Grant | IdError | None] = []
        with transaction.atomic(using=alias):
            for counter in counters:
                spec = counter.rule.spec
                wall = self._wall(spec, counter.shown)
                try:
                    new, grant = reserve(None, spec, wall=wall, step=ids.step, offset=ids.offset, want=counter.want)
                    created = _created(alias, counter.rule_id, spec, counter.app, new, grant)
                    results.append(grant if created else None)
                except IdError as error:
                    results.append(error)
        return results


def take_in_transaction(
    rule: IdRule, spec: RuleSpec, app: str, *, alias: str, clock: Clock, use: Callable[[Grant], list[str]], want: int
) -> list[str]:
    """Take numbers inside the transaction open on `alias`, and turn them into IDs with `use`; a rollback undoes both.

    The counter's row stays locked until that transaction ends, so that the next caller sees its outcome.
    """
    offset = conf.ids.offset
    mine = IdCounter.objects.using(alias).filter(rule_id=rule.pk, app_name=app, node_offset=offset)
    if not mine.update(updated_at=timezone.now()):
        _lock_rule(alias, rule.pk)
        mine.update(updated_at=timezone.now())  # locks the row if another transaction has created it
    stored = find_counter(alias, rule.pk, app, offset)
    wall = wall_at(clock(), spec.zone)
    name = f"{spec.name}/{app}"
    old = row_of(stored) if stored else None
    new, grant = reserve(old, spec, wall=wall, step=conf.ids.step, offset=offset, want=want, name=name)
    returned = use(grant)
    if stored is None:
        _create(alias, rule.pk, spec, app, new, grant, issued=len(grant.numbers))
    elif not _swap(alias, stored, new, grant.numbers.start, issued=len(grant.numbers)):
        raise Unavailable(
            f"Counter {name} changed during this transaction. Use READ COMMITTED, or repeat the transaction."
        )
    return returned


def find_counter(alias: str, rule_id: int, app: str, offset: int) -> IdCounter | None:
    return IdCounter.objects.using(alias).filter(rule_id=rule_id, app_name=app, node_offset=offset).first()


def row_of(stored: IdCounter) -> CounterRow:
    return CounterRow(stored.step, Cycle(stored.cycle_start, stored.cycle_end), stored.bound, stored.shown)


def write_row(alias: str, stored: IdCounter, new: CounterRow, **others: object) -> bool:
    """Write `new`, and the `others` of the counter's fields, if the row is unchanged since `stored` was read."""
    unchanged = IdCounter.objects.using(alias).filter(
        pk=stored.pk,
        step=stored.step,
        bound=stored.bound,
        cycle_start=stored.cycle_start,
        cycle_end=stored.cycle_end,
        shown=stored.shown,
    )
    return bool(
        unchanged.update(
            step=new.step,
            bound=new.bound,
            shown=new.shown,
            cycle_start=new.cycle.start,
            cycle_end=new.cycle.end,
            **others,
        )
    )


def _swap(alias: str, stored: IdCounter, new: CounterRow, first: int = 0, issued: int = 0) -> bool:
    """Write `new` if the row is unchanged since `stored` was read; `first` is the first number of a new cycle.

    `issued` is added to the window of the forecast. The window spans ended cycles, because a forecast needs more than
    the first hours of a new cycle; a long window is halved, so that its latest half counts most.
    """
    now = timezone.now()
    turned = new.cycle.start >= stored.cycle_end
    began, count = stored.window_began or now, stored.window_issued + issued
    if now - began > (SHORT_WINDOW if turned else LONG_WINDOW):
        began, count = began + (now - began) / 2, count - count // 2
    entered = {"cycle_began": now, "cycle_first": first} if turned else {}
    return write_row(alias, stored, new, updated_at=now, window_began=began, window_issued=count, **entered)


def _lock_rule(alias: str, rule_id: int) -> None:
    """Lock the rule's row until the transaction ends, so that the count of names is exact."""
    if not IdRule.objects.using(alias).filter(pk=rule_id).update(max_names=F("max_names")):
        raise UnknownRule("The rule was deleted.")


def _count_name(alias: str, rule_id: int, spec: RuleSpec) -> None:
    """Count one more application name, under the rule's lock. Raise TooManyNames if the rule has reached its maximum.

    At the maximum, the names are counted again from time to time: counters may have been deleted by hand.
    """
    rules = IdRule.objects.using(alias).filter(pk=rule_id)
    if rules.filter(name_count__lt=F("max_names")).update(name_count=F("name_count") + 1):
        return
    allowed = rules.values_list("max_names", flat=True).get()
    began = time.monotonic()
    if began >= next_count.get(rule_id, 0.0):
        names = count_names(alias, rule_id)
        ended = time.monotonic()
        next_count[rule_id] = ended + MIN_RECOUNT_RATIO * (ended - began)
        if names < allowed:
            rules.update(name_count=F("name_count") + 1)
            return
    raise TooManyNames(f"Rule {spec.name} already has {allowed} application names. Raise its max_names.")


def count_names(alias: str, rule_id: int) -> int:
    """Count the application names of a rule that have a counter, and store and return the count."""
    counters = IdCounter.objects.using(alias).filter(rule_id=rule_id)
    names = counters.values("app_name").distinct().count()
    IdRule.objects.using(alias).filter(pk=rule_id).update(name_count=names)
    return names


def _created(alias: str, rule_id: int, spec: RuleSpec, app: str, new: CounterRow, grant: Grant) -> bool:
    """Create a counter. Return False if another process was faster."""
    try:
        with transaction.atomic(using=alias):
            _create(alias, rule_id, spec, app, new, grant)
    except IntegrityError:
        return False
    return True


def _create(
    alias: str, rule_id: int, spec: RuleSpec, app: str, new: CounterRow, grant: Grant, *, issued: int = 0
) -> None:
    _lock_rule(alias, rule_id)
    counters = IdCounter.objects.using(alias).filter(rule_id=rule_id)
    conflict = counters.filter(app_name=app).exclude(step=new.step).first()
    if conflict is not None:
        raise StepChanged(
            f"Counter {conflict} was created with step {conflict.step}, but this site uses step {new.step}. Set "
            "RESTY_DJANGO['IDS']['STEP'] back, or confirm the step on the counter's page in the admin."
        )
    if not counters.filter(app_name=app).exists():
        _count_name(alias, rule_id, spec)
    IdCounter.objects.using(alias).create(
        rule_id=rule_id,
        app_name=app,
        node_offset=conf.ids.offset,
        step=new.step,
        bound=new.bound,
        cycle_start=new.cycle.start,
        cycle_end=new.cycle.end,
        shown=new.shown,
        cycle_began=(now := timezone.now()),
        cycle_first=grant.numbers.start,
        window_began=now,
        window_issued=issued,
    )
