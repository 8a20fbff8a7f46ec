"""The allocator under everything at once, as a state machine: several processes with separate clocks on one store.

Processes are started, stopped, killed; their clocks jump; the rule's range, reset, zone and segment size are edited
and the edit reaches each process at another time; orders of segments lie about between their commit and their
delivery; two nodes share the database; the store goes away and comes back. Whatever happens:

* no number is given out twice in one cycle of a counter, and no text twice that shows the cycle of its rule;
* what is given out lies below the bound that was committed before it, and within the rule's range;
* shown time lies inside the cycle that the number was reserved in, and never runs backwards within a process;
* `Exhausted` is raised when nothing is left to reserve, and never otherwise.

The known limit: an edit of the reset to or from "never" has to reach all processes before a cycle has passed. The
machine brings those to everybody at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from resty_django.ids.engine.counter import Counter
from resty_django.ids.engine.cycle import DAY_SECONDS, WEEK_SECONDS, Reset
from resty_django.ids.engine.rule import RuleSpec, compile_rule
from resty_django.ids.engine.segment import Grant
from resty_django.ids.engine.template import Template
from resty_django.ids.engine.wall_clock import wall_of
from resty_django.ids.errors import Exhausted, IdError, Unavailable
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import reservations as desk_module
from resty_django.ids.service.id_service import IdService
from resty_django.ids.service.requests import Requests
from resty_django.ids.service.reservations import ReservationThread
from resty_django.ids.store import CounterStore
from tests.unit.ids.memory_store import ManualReserver, MemoryStore

FULL = "{now:%Y%m%d%H%M%S}-{counter}"
# A reset, and the shortest text that distinguishes its cycles; without cycles only the full time will do.
RESETS: dict[str, tuple[Reset, str]] = {
    "never": (Reset(), "N" + FULL),
    "half hour": (Reset(1800), "m{now:%Y%m%d%H%M}-{counter}"),
    "hour": (Reset(3600), "H{now:%Y%m%d%H}-{counter}"),
    "odd": (Reset(5000), "o" + FULL),
    "day": (Reset(DAY_SECONDS), "D{now:%Y%m%d}-{counter}"),
    "three days": (Reset(3 * DAY_SECONDS), "T{now:%Y%j}-{counter}"),
    "week": (Reset(WEEK_SECONDS), "W{now:%G%V}-{counter}"),
    "month": (Reset(calendar="month"), "M{now:%Y%m}-{counter}"),
}
APPS = ("", "shop")
# An evening before the clocks of Berlin are set back, a Saturday near the end of a month.
START = datetime(2026, 10, 24, 20, tzinfo=UTC).timestamp()

resets = st.sampled_from(sorted(RESETS))
zones = st.sampled_from(["Europe/Berlin", "UTC", "Asia/Kathmandu", "Pacific/Kiritimati"])
ranges = st.sampled_from([(0, 9), (0, 40), (0, 1000), (7, 60), (30, 1000)])
sizes = st.sampled_from([1, 2, 5, 20])
which = st.integers(0, 11)
apps = st.sampled_from(APPS)
counts = st.sampled_from([1, 1, 2, 7, 30])
short = st.sampled_from([0.0, 0.4, 1.0, 59.0, 900.0, 3600.0])
long = st.sampled_from([1.0, 1800.0, 5000.0, 43_200.0, 86_400.0, 5 * 86_400.0])


@dataclass
class Ledger:
    """Everything that was ever given out, and what must hold of it."""

    pairs: set[tuple[str, int, int, int]] = field(default_factory=set)
    texts: set[tuple[str, str]] = field(default_factory=set)
    top: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def note(self, issued_id: str, app: str, offset: int, spec: RuleSpec, coarse: Template, grants: list[Grant]) -> int:
        """Enter an ID of the form `FULL`; the wall second that it shows."""
        shown_time, _, digits = issued_id.partition("-")
        wall, number = wall_of(datetime.strptime(shown_time, "%Y%m%d%H%M%S")), int(digits)
        assert spec.min_counter <= number <= spec.max_counter
        of = next((g for g in reversed(grants) if number in g.numbers and g.cycle.start <= wall < g.cycle.end), None)
        assert of is not None, f"{issued_id} belongs to no reservation"
        pair = (app, offset, of.cycle.start, number)
        assert pair not in self.pairs, f"{issued_id}: its number was given out before in this cycle"
        self.pairs.add(pair)
        text = (app, coarse.shape(wall, app).render(number, ""))
        assert text not in self.texts, f"{text[1]} came twice"
        self.texts.add(text)
        line = (app, offset, of.cycle.start)
        self.top[line] = max(self.top.get(line, -1), number)
        return wall


def coarse_of(spec: RuleSpec, reset: str) -> Template:
    compiled = compile_rule(replace(spec, source=RESETS[reset][1]))
    assert isinstance(compiled, Template)
    return compiled


class Clockwork:
    """A process's clock: the world's time plus an error."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.error = 0.0

    def __call__(self) -> float:
        return float(self.world.now + self.error)


class World(RuleBasedStateMachine):
    """Processes of either kind, which may be killed and whose clocks may jump."""

    now: float
    processes: list[Any]

    def process(self, index: int) -> Any:
        return self.processes[index % len(self.processes)]

    @precondition(lambda self: len(self.processes) > 1)
    @rule(index=which)
    def kill(self, index: int) -> None:
        self.processes.remove(self.process(index))

    @rule(seconds=st.one_of(short, long))
    def tick(self, seconds: float) -> None:
        self.now += seconds

    @rule(index=which, seconds=st.one_of(short, long), back=st.booleans())
    def jump(self, index: int, seconds: float, back: bool) -> None:
        self.process(index).clock.error += -seconds if back else seconds

    @classmethod
    def play(cls, examples: int, steps: int) -> None:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            cls,
            settings=settings(
                max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=[*HealthCheck]
            ),
        )


# Over the store in memory


class Process:
    """The state of one operating system process: counters of one version of the rule, and a reserver."""

    def __init__(self, world: Allocator, offset: int) -> None:
        self.world = world
        self.clock = Clockwork(world)
        self.reserver = ManualReserver(world.memory_store, self.clock, step=world.step, offset=offset)
        self.offset = offset
        self.counters: dict[str, Counter] = {}
        self.shown: dict[str, int] = {}
        self.grants: dict[str, list[Grant]] = {app: [] for app in APPS}
        self.adopt()

    def adopt(self) -> None:
        """Take over the rule as it is now: counters of the old one are closed, what they did not use goes back."""
        self.spec, self.reset = self.world.spec, self.world.reset
        self.coarse = coarse_of(self.spec, self.reset)
        self.close()

    def close(self) -> None:
        for app, counter in self.counters.items():
            self.reserver.retire(counter)
            if counter.shown is not None:
                self.shown[app] = counter.shown
        self.counters.clear()

    def counter(self, app: str) -> Counter:
        if app not in self.counters:
            self.counters[app] = self.reserver.counter(self.spec, app, max_segment=50, shown=self.shown.get(app))
        return self.counters[app]

    def reserve_next(self, between: Any = None) -> None:
        if not self.reserver.orders:
            return
        before = len(self.world.memory_store.grants)
        refused = len(self.reserver.refused)
        self.reserver.reserve_next(between)
        for app, offset, grant in self.world.memory_store.grants[before:]:
            # A reservation that came in between belongs to another process, which has entered it already.
            if not any(grant is granted for process in self.world.processes for granted in process.grants[app]):
                assert offset == self.offset
                self.grants[app].append(grant)
        for counter, error in self.reserver.refused[refused:]:
            if isinstance(error, Exhausted):
                row = self.world.memory_store.rows[(counter.app, self.offset)]
                assert row.bound > counter.rule.spec.max_counter
            else:
                assert isinstance(error, Unavailable)
                assert self.world.memory_store.down

    def work(self) -> None:
        """Do all waiting orders."""
        while self.reserver.orders or self.reserver.granted:
            if self.reserver.granted:
                self.reserver.deliver_next()
            else:
                self.reserve_next()


class Allocator(World):
    """Processes over the store in memory, where each half step can be played."""

    @initialize(step=st.integers(1, 3), reset=resets, zone=zones, bounds=ranges, size=sizes)
    def begin(self, step: int, reset: str, zone: str, bounds: tuple[int, int], size: int) -> None:
        self.now = START
        self.step, self.reset = step, reset
        self.memory_store = MemoryStore()
        self.spec = RuleSpec(
            name="r",
            source=FULL,
            min_counter=bounds[0],
            max_counter=bounds[1],
            anchor=bounds[0],
            reset=RESETS[reset][0],
            timezone=zone,
            segment_size=size,
        )
        self.ledger = Ledger()
        self.processes = []
        self.start(0)
        self.start(1)

    @precondition(lambda self: len(self.processes) < 4)
    @rule(offset=which)
    def start(self, offset: int) -> None:
        self.processes.append(Process(self, offset % self.step))

    @rule(index=which, app=apps, count=counts, single=st.booleans())
    def ask(self, index: int, app: str, count: int, single: bool) -> None:
        self.asked(index, app, count, single)

    def asked(self, index: int, app: str, count: int, single: bool) -> list[str]:
        process = self.process(index)
        counter = process.counter(app)
        ids = [issued_id] if single and (issued_id := counter.attempt()) else counter.attempt_many(count)
        for new_id in ids:
            wall = self.ledger.note(new_id, app, process.offset, process.spec, process.coarse, process.grants[app])
            assert wall >= process.shown.get(app, wall), f"{new_id} shows a time before one shown already"
            process.shown[app] = wall
        if len(ids) < count:
            counter.refill(1e9)
        return ids

    @rule(index=which)
    def commit(self, index: int) -> None:
        self.process(index).reserve_next()

    @rule(index=which)
    def deliver(self, index: int) -> None:
        reserver = self.process(index).reserver
        if reserver.granted:
            reserver.deliver_next()

    @rule(index=which, rival=which)
    def race(self, index: int, rival: int) -> None:
        """Another process commits between this one's read and write."""
        first, second = self.process(index), self.process(rival)
        first.reserve_next(second.reserve_next if first is not second else None)

    @rule(index=which, app=apps, count=counts)
    def serve(self, index: int, app: str, count: int) -> None:
        """Ask, with the reserver as fast as can be: there is an ID, or a reason."""
        process = self.process(index)
        refused = len(process.reserver.refused)
        self.ask(index, app, count, False)
        for _ in range(2):
            process.work()
            if self.asked(index, app, 1, True):
                return
        assert any(counter.app == app for counter, _ in process.reserver.refused[refused:])

    @precondition(lambda self: len(self.processes) > 1)
    @rule(index=which)
    def stop(self, index: int) -> None:
        process = self.process(index)
        while process.reserver.granted:
            process.reserver.deliver_next()
        process.close()
        self.processes.remove(process)

    @rule(index=which)
    def hear_of_the_edit(self, index: int) -> None:
        process = self.process(index)
        if process.spec != self.spec:
            process.adopt()

    @rule(zone=zones, bounds=ranges, size=sizes)
    def edit_the_range(self, zone: str, bounds: tuple[int, int], size: int) -> None:
        self.spec = replace(self.spec, timezone=zone, min_counter=bounds[0], max_counter=bounds[1], segment_size=size)

    @rule(reset=resets)
    def edit_the_reset(self, reset: str) -> None:
        for_all = "never" in (reset, self.reset) and reset != self.reset
        self.reset = reset
        self.spec = replace(self.spec, reset=RESETS[reset][0])
        if for_all:
            for process in self.processes:
                process.adopt()

    @rule()
    def lose_the_database(self) -> None:
        self.memory_store.down = True

    @rule()
    def find_the_database(self) -> None:
        self.memory_store.down = False

    @invariant()
    def all_that_was_given_out_is_committed(self) -> None:
        if not hasattr(self, "memory_store"):
            return
        for (app, offset), row in self.memory_store.rows.items():
            assert self.ledger.top.get((app, offset, row.cycle.start), -1) < row.bound

    def teardown(self) -> None:
        """In the end, with the database there and a cycle passed, everybody gets a number again."""
        if not hasattr(self, "memory_store"):
            return
        self.memory_store.down = False
        self.now += 400 * DAY_SECONDS
        for process in self.processes:
            process.clock.error = max(process.clock.error, 0.0)
            process.adopt()
            process.reserver.orders.clear()
            process.reserver.granted.clear()
            for app in APPS:
                try:
                    ids = process.reserver.ids(process.counter(app), 1)
                except Exhausted:
                    row = self.memory_store.rows[(app, process.offset)]
                    assert row.bound > process.spec.max_counter
                else:
                    assert ids


def test_no_number_comes_twice_whatever_happens() -> None:
    Allocator.play(120, 60)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_number_comes_twice_whatever_happens_for_long() -> None:
    Allocator.play(6000, 100)


# Over the real service and store


class RecordingStore(CounterStore):
    """The store, with a note of each reservation made through it."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.grants: dict[str, list[Grant]] = {app: [] for app in APPS}

    def reserve(self, rule_id: int, spec: RuleSpec, app: str, **options: Any) -> Grant:
        grant = super().reserve(rule_id, spec, app, **options)
        self.grants[app].append(grant)
        return grant


class LateRequests(Requests):
    """Orders wait; the rules are read at once."""

    def __init__(self, read_rules: Callable[[], Any]) -> None:
        super().__init__()
        self._read_rules = read_rules

    def refresh(self) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(self._read_rules())
        return future


class LateReservations(ReservationThread):
    """The reservation thread without a thread: orders wait until the machine does them, the rest is done at once."""

    def __init__(self, service: IdService, store: CounterStore) -> None:
        super().__init__(service, store)
        self.requests = LateRequests(service.refresh)

    def start(self) -> None: ...

    def stop(self, timeout: float) -> None: ...

    @property
    def running(self) -> bool:
        return True

    def submit(self, work: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work())
        return future

    def work_once(self) -> IdError | None:
        counter, future, _ = (self.requests.orders or self.requests.names).popleft()
        try:
            self._reserve(counter)
        except IdError as error:
            future.set_exception(error)
            return error
        future.set_result(None)
        return None


class Site:
    """One process of the real service."""

    def __init__(self, world: ServiceMachine, offset: int) -> None:
        self.world, self.offset = world, offset
        self.clock = Clockwork(world)
        with self.settings():
            self.service = IdService(self.clock)
            self.store = RecordingStore(self.clock)
            self.reservations = LateReservations(self.service, self.store)
            self.service.reservations, self.service.store = self.reservations, self.store
            self.service.load()
        self.shown: dict[str, int] = {}
        self.adopt()

    @contextmanager
    def settings(self) -> Iterator[None]:
        ids = {"STEP": self.world.step, "OFFSET": self.offset, "NEW_NAMES_PER_SECOND": 0, "MAX_SEGMENT": 50}
        with override_settings(RESTY_DJANGO={"IDS": ids}):
            yield

    def adopt(self) -> None:
        with self.settings():
            self.service.refresh()
            compiled = self.service.rule("r").ready()
        self.spec = compiled.spec
        self.coarse = coarse_of(self.spec, self.world.reset)


class ServiceMachine(World):
    """The real service over the real store, without threads."""

    zone: ClassVar[str] = "Europe/Berlin"

    @initialize(step=st.integers(1, 2), reset=resets, bounds=ranges, size=sizes)
    def begin(self, step: int, reset: str, bounds: tuple[int, int], size: int) -> None:
        self.now = START
        self.step, self.reset = step, reset
        self.row = IdRule(
            name="r", source=FULL, min_counter=bounds[0], max_counter=bounds[1], timezone=self.zone, segment_size=size
        )
        self.set_reset(reset)
        self.row.full_clean()
        self.row.save()
        self.ledger = Ledger()
        self.processes = []
        self.start(0)
        self.start(1)

    def set_reset(self, reset: str) -> None:
        self.reset = reset
        self.row.reset_seconds, self.row.reset_calendar = RESETS[reset][0].seconds, RESETS[reset][0].calendar

    @precondition(lambda self: len(self.processes) < 3)
    @rule(offset=which)
    def start(self, offset: int) -> None:
        self.processes.append(Site(self, offset % self.step))

    @rule(index=which, app=apps, count=counts)
    def ask(self, index: int, app: str, count: int) -> None:
        site = self.process(index)
        ids: list[str] = []
        with site.settings():
            try:
                site.service.step(ids, count, "r", app, "", reload=False)
            except Exhausted:
                row = IdCounter.objects.get(rule=self.row, app_name=app, node_offset=site.offset)
                assert row.bound > site.spec.max_counter
        for issued_id in ids:
            wall = self.ledger.note(issued_id, app, site.offset, site.spec, site.coarse, site.store.grants[app])
            assert wall >= site.shown.get(app, wall)
            site.shown[app] = wall

    @rule(index=which)
    def commit(self, index: int) -> None:
        site = self.process(index)
        if len(site.reservations.requests):
            with site.settings():
                error = site.reservations.work_once()
            assert error is None or isinstance(error, Exhausted)

    @rule(index=which, app=apps, count=counts)
    def serve(self, index: int, app: str, count: int) -> None:
        self.ask(index, app, count)
        self.commit(index)
        self.ask(index, app, count)

    @precondition(lambda self: len(self.processes) > 1)
    @rule(index=which)
    def stop(self, index: int) -> None:
        site = self.process(index)
        with site.settings():
            site.service.stop()
        self.processes.remove(site)

    @rule(bounds=ranges, size=sizes)
    def edit_the_range(self, bounds: tuple[int, int], size: int) -> None:
        self.row.min_counter, self.row.max_counter, self.row.segment_size = *bounds, size
        self.row.save()

    @rule(reset=resets)
    def edit_the_reset(self, reset: str) -> None:
        # All at once: texts are checked with the reset that a site knows of.
        self.set_reset(reset)
        self.row.save()
        for site in self.processes:
            site.adopt()

    @rule(index=which)
    def hear_of_the_edit(self, index: int) -> None:
        self.process(index).adopt()

    @invariant()
    def all_that_was_given_out_is_committed(self) -> None:
        if hasattr(self, "row"):
            for row in IdCounter.objects.filter(rule=self.row):
                assert self.ledger.top.get((row.app_name, row.node_offset, row.cycle_start), -1) < row.bound

    def teardown(self) -> None:
        if hasattr(self, "row"):
            self.row.delete()


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_the_service_over_its_database_issues_no_number_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "REFUSED_SECONDS", 0.0)
    ServiceMachine.play(8, 30)


@pytest.mark.db
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.django_db(transaction=True)
def test_the_service_over_its_database_issues_no_number_twice_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "REFUSED_SECONDS", 0.0)
    ServiceMachine.play(300, 60)
