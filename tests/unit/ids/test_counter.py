"""Counters in memory: order, text and time of their IDs, and when they order more numbers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resty_django.ids.engine import counter as counter_module
from resty_django.ids.engine.counter import Counter, Retired, Segment
from resty_django.ids.engine.cycle import DAY_SECONDS, Cycle, Reset
from resty_django.ids.engine.rule import RuleSpec, ScriptRule
from resty_django.ids.engine.segment import Grant
from resty_django.ids.engine.wall_clock import Moment, wall_at, wall_of
from resty_django.ids.errors import BadSalt, Exhausted, Unavailable
from tests.dictionaries import Clock
from tests.unit.ids.memory_store import ManualReserver, MemoryStore

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1000.0)
    monkeypatch.setattr(counter_module, "monotonic", clock)
    return clock


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
def reserver(clock: Clock) -> ManualReserver:
    return ManualReserver(MemoryStore(), clock)


def spec(source: str = "{now:%Y%m%d}-{counter:06d}", reset: Reset = Reset(DAY_SECONDS), **options: Any) -> RuleSpec:  # noqa: B008
    return RuleSpec(name="r", source=source, reset=reset, **{"max_counter": 999_999, "segment_size": 10, **options})


def numbers(ids: list[str]) -> list[int]:
    return [int(issued_id.rpartition("-")[2]) for issued_id in ids]


def test_nothing_is_issued_before_a_reservation(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec())
    assert counter.attempt() is None
    assert counter.attempt_many(5) == []
    future = counter.refill(1)
    assert counter.attempt() is None
    assert not future.done()
    reserver.reserve_next()
    assert counter.attempt() is None
    reserver.deliver_next()
    assert future.done()
    assert counter.attempt() == "20261121-000000"


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=20), st.integers(1, 3), st.integers(1, 12))
def test_no_number_is_lost_or_issued_twice(steps: list[tuple[int, bool]], step: int, size: int) -> None:
    reserver = ManualReserver(MemoryStore(), Clock(NOON), step=step)
    counter = reserver.counter(spec(segment_size=size))
    issued: list[int] = []
    for count, work in steps:
        issued += numbers(counter.attempt_many(count))
        single = counter.attempt()
        issued += numbers([single]) if single else []
        if not single:
            counter.refill(60)
        if work:
            reserver.work()
    assert issued == [step * i for i in range(len(issued))]
    assert counter.issued == len(issued)
    assert counter.position == (issued[-1] if issued else None)
    reserver.work()
    reserver.retire(counter)
    assert counter.issued == len(issued)
    after = reserver.counter(spec(segment_size=size))
    assert numbers(reserver.ids(after, 1)) == [step * len(issued)]


def test_the_next_segment_is_ordered_when_half_is_used(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec())
    assert len(reserver.ids(counter, 5)) == 5
    assert not reserver.orders
    assert counter.attempt()
    assert len(reserver.orders) == 1
    for _ in range(4):
        assert counter.attempt()
    assert len(reserver.orders) == 1
    reserver.work()
    assert counter.attempt() == "20261121-000010"
    assert counter.remaining > 0


def test_a_batch_that_passes_the_half_orders_the_next_segment(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec())
    reserver.ids(counter, 1)
    counter.attempt_many(7)
    assert len(reserver.orders) == 1


def test_a_segment_of_one_number_works(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec(segment_size=1), max_segment=1)
    assert numbers(reserver.ids(counter, 20)) == list(range(20))


def test_segments_fit_the_demand(reserver: ManualReserver, ticks: Clock) -> None:
    counter = reserver.counter(spec(), max_segment=35)
    reserver.ids(counter, 200)
    assert counter.want == 35
    wants = []
    for _ in range(20):
        ticks.now += 61
        reserver.ids(counter, 5)
        wants.append(counter.want)
    assert wants == sorted(wants, reverse=True)
    assert wants[-1] == 10


def test_a_finished_order_is_not_repeated_by_a_latecomer(reserver: ManualReserver) -> None:
    """A latecomer found no number, and was slow to order one, while the segment arrived for another."""
    counter = reserver.counter(spec())
    assert counter.attempt() is None
    counter.refill(60)
    reserver.work()
    late = counter.refill(60)
    assert late.done()
    assert not reserver.orders
    assert numbers(reserver.ids(counter, 25)) == list(range(25))


def test_all_who_wait_join_one_order(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec())
    assert counter.refill(60) is counter.refill(60)
    assert len(reserver.orders) == 1


def test_an_order_that_takes_too_long_is_unavailable(reserver: ManualReserver, ticks: Clock) -> None:
    counter = reserver.counter(spec())
    counter.refill(2)
    ticks.now += 2.1
    with pytest.raises(Unavailable):
        counter.refill(2)
    reserver.work()
    assert counter.attempt() == "20261121-000000"


def test_a_refusal_holds_for_a_while_and_then_is_tried_again(reserver: ManualReserver, ticks: Clock) -> None:
    counter = reserver.counter(spec())
    counter.refill(2)
    reserver.orders.clear()
    counter.refuse(Exhausted("no more"), 1.0)
    for _ in range(50):
        with pytest.raises(Exhausted, match="no more") as caught:
            counter.refill(2)
    # The same error again and again: its traceback must not grow with each.
    depth, tb = 0, caught.value.__traceback__
    while tb is not None:
        depth, tb = depth + 1, tb.tb_next
    assert depth < 5
    ticks.now += 1.1
    counter.refill(2)
    reserver.work()
    assert counter.attempt() == "20261121-000000"


def test_reserved_numbers_are_issued_while_the_store_is_down(reserver: ManualReserver, ticks: Clock) -> None:
    counter = reserver.counter(spec())
    reserver.ids(counter, 3)
    reserver.memory_store.down = True
    ids = []
    while (issued_id := counter.attempt()) is not None:
        ids.append(issued_id)
        reserver.work()
    assert numbers(ids) == list(range(3, 10))
    with pytest.raises(Unavailable):
        reserver.ids(counter, 1)
    reserver.memory_store.down = False
    assert numbers(reserver.ids(counter, 12)) == list(range(10, 22))


def test_the_next_segment_is_asked_for_again_after_a_refusal(
    reserver: ManualReserver, clock: Clock, ticks: Clock
) -> None:
    """Background orders that failed are repeated before the numbers run out."""
    counter = reserver.counter(spec(segment_size=100))
    reserver.ids(counter, 51)
    assert len(reserver.orders) == 1
    reserver.orders.clear()
    counter.refuse(Unavailable("down"), 0.5)
    assert counter.attempt()
    assert not reserver.orders
    ticks.now += 1.1
    clock.now += 1.1
    assert counter.attempt()
    assert len(reserver.orders) == 1


def test_exhausted_until_the_cycle_turns(reserver: ManualReserver, clock: Clock) -> None:
    counter = reserver.counter(spec(max_counter=24))
    assert numbers(reserver.ids(counter, 25)) == list(range(25))
    for _ in range(3):
        with pytest.raises(Exhausted):
            reserver.ids(counter, 1)
    clock.now += DAY_SECONDS / 2
    assert reserver.ids(counter, 2) == ["20261122-000000", "20261122-000001"]


# Closing


def test_a_closed_counter_issues_nothing_and_returns_its_tails(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec())
    reserver.ids(counter, 6)
    reserver.work()
    tails = counter.close()
    assert [tail for _, tail in tails] == [range(10, 30), range(6, 10)]
    assert counter.closed
    for ask in (counter.attempt, lambda: counter.attempt_many(2), lambda: counter.refill(1)):
        with pytest.raises(Retired):
            ask()
    assert counter.close() == []
    assert (counter.remaining, counter.issued) == (0, 6)


def test_a_segment_that_comes_after_the_close_goes_back(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec())
    counter.refill(60)
    reserver.reserve_next()
    counter.close()
    reserver.deliver_next()
    assert reserver.memory_store.rows[("", 0)].bound == 0


class Calling(Clock):
    """A clock that does something when it is read for the n-th time from now."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: int | None = None
        self.act: Callable[[], object] = lambda: None

    def __call__(self) -> float:
        if self.reads is not None:
            self.reads -= 1
            if self.reads == 0:
                self.reads = None
                self.act()
        return self.now


def test_ids_made_before_their_counter_was_closed_are_returned() -> None:
    """The counter is retired in the middle of a batch: what the batch has is not burnt."""
    clock = Calling()
    reserver = ManualReserver(MemoryStore(), clock)
    counter = reserver.counter(spec())
    reserver.ids(counter, 1)
    clock.reads, clock.act = 2, lambda: reserver.retire(counter)
    ids = counter.attempt_many(20)
    assert numbers(ids) == [1, 2, 3, 4]
    assert numbers(reserver.ids(reserver.counter(spec()), 1)) == [5]


def test_ids_of_a_script_made_before_its_counter_was_closed_are_returned() -> None:
    reserver = ManualReserver(MemoryStore(), Clock(NOON))

    class Closing(Taking):
        def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
            number = take()
            if number == 2:
                counter.close()
                take()
            return str(number)

    counter = Counter(
        ScriptRule(spec("", fixed_length=False), Closing(1)), "", reserver, reserver.clock, max_segment=10
    )
    reserver.ids(counter, 1)
    assert counter.attempt_many(20) == ["1"]
    with pytest.raises(Retired):
        counter.attempt_many(1)


# Time


def test_midnight_is_the_same_for_text_and_number(reserver: ManualReserver, clock: Clock) -> None:
    counter = reserver.counter(spec(timezone="Europe/Berlin"))
    clock.now = datetime(2026, 11, 21, 23, 59, 59, 999999, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    assert reserver.ids(counter, 3) == ["20261121-000000", "20261121-000001", "20261121-000002"]
    clock.now += 0.000002
    assert reserver.ids(counter, 2) == ["20261122-000000", "20261122-000001"]


def test_the_text_follows_the_clock_to_the_second(reserver: ManualReserver, clock: Clock) -> None:
    counter = reserver.counter(spec("{now:%H:%M:%S}-{counter:06d}", Reset(), timezone="Asia/Kathmandu"))
    for _ in range(40):
        expected = datetime.fromtimestamp(clock.now, ZoneInfo("Asia/Kathmandu")).strftime("%H:%M:%S")
        assert reserver.ids(counter, 1)[0].startswith(expected)
        clock.now += 0.37


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29)),
        ("Europe/Berlin", datetime(2026, 10, 25)),
        ("Australia/Lord_Howe", datetime(2026, 4, 4)),
        ("Australia/Lord_Howe", datetime(2026, 10, 3)),
        ("America/Havana", datetime(2026, 11, 1)),
    ],
)
@pytest.mark.parametrize(
    ("source", "reset"),
    [
        ("{now:%Y%m%d}-{counter:06d}", Reset(DAY_SECONDS)),
        ("{now:%Y%m%d%H}-{counter:06d}", Reset(3600)),
        ("{now:%Y%m%d%H%M}-{counter:06d}", Reset(1800)),
        ("{now:%Y%m%d%H%M%S}-{counter:06d}", Reset(60)),
        ("{now:%y%m}-{counter:06d}", Reset(calendar="month")),
    ],
)
def test_no_id_comes_twice_when_clocks_change(zone: str, around: datetime, source: str, reset: Reset) -> None:
    """Four days in steps of 7 minutes, with three processes that are restarted now and then."""
    memory_store = MemoryStore()
    clock = Clock(around.replace(tzinfo=UTC).timestamp() - DAY_SECONDS)
    reservers = [ManualReserver(memory_store, clock) for _ in range(3)]
    rule = spec(source, reset, timezone=zone, segment_size=3)
    counters = [reserver.counter(rule, max_segment=3) for reserver in reservers]
    ids: set[str] = set()
    last = [""] * 3
    end = clock.now + 3 * DAY_SECONDS
    turn = 0
    while clock.now < end:
        clock.now += 421.3
        turn += 1
        at = turn % 3
        for issued_id in reservers[at].ids(counters[at], 2):
            assert issued_id not in ids
            ids.add(issued_id)
            assert issued_id.partition("-")[0] >= last[at]
            last[at] = issued_id.partition("-")[0]
        if turn % 50 == 0:
            reservers[at].retire(counters[at])
            counters[at] = reservers[at].counter(rule, max_segment=3, shown=counters[at].shown)


def test_the_repeated_hour_continues_where_the_first_ended(reserver: ManualReserver, clock: Clock) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    counter = reserver.counter(spec("{now:%H%M}-{counter:06d}{now:%y%m%d}", Reset(3600), timezone="Europe/Berlin"))
    clock.now = datetime(2026, 10, 25, 2, 59, tzinfo=berlin).timestamp()
    assert reserver.ids(counter, 1) == ["0259-000000261025"]
    clock.now = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=berlin).timestamp()
    assert reserver.ids(counter, 1) == ["0259-000001261025"]
    clock.now = datetime(2026, 10, 25, 3, 0, tzinfo=berlin).timestamp()
    assert reserver.ids(counter, 1) == ["0300-000000261025"]


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.floats(-2 * DAY_SECONDS, 2 * DAY_SECONDS, width=32), st.integers(1, 12)), max_size=30),
    st.sampled_from(
        [
            Reset(),
            Reset(1),
            Reset(60),
            Reset(3600),
            Reset(DAY_SECONDS),
            Reset(7 * DAY_SECONDS),
            Reset(5000),
            Reset(calendar="month"),
        ]
    ),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"]),
)
@example([(3761.0, 1), (-202.0, 1)], Reset(), "Europe/Berlin")
def test_shown_time_never_runs_backwards_and_stays_in_its_cycle(
    jumps: list[tuple[float, int]], reset: Reset, zone: str
) -> None:
    """The example sets the clock back over the end of summer time; the shown time then stays behind the local time."""
    clock = Clock(datetime(2026, 10, 25, tzinfo=UTC).timestamp())
    latest = clock.now
    reserver = ManualReserver(MemoryStore(), clock)
    counter = reserver.counter(spec("{now:%Y%m%d%H%M%S}-{counter}", reset, timezone=zone))
    last = ""
    issued: set[tuple[int, int]] = set()
    for jump, count in jumps:
        clock.now += jump
        latest = max(latest, clock.now)
        for issued_id in reserver.ids(counter, count):
            shown_time, _, number = issued_id.partition("-")
            assert shown_time >= last
            last = shown_time
            wall = wall_of(datetime.strptime(shown_time, "%Y%m%d%H%M%S"))
            assert wall >= min(wall_at(now, ZoneInfo(zone)) for now in (clock.now, latest))
            key = (reset.cycle(wall).start, int(number))
            assert key not in issued
            issued.add(key)
        assert counter.shown == wall_of(datetime.strptime(last, "%Y%m%d%H%M%S"))


def test_a_segment_shows_no_time_before_what_others_have_shown(clock: Clock) -> None:
    """Another process's clock is ahead: what is reserved after it shows its time, the spare segment too."""
    memory_store = MemoryStore()
    counter = (slow := ManualReserver(memory_store, clock)).counter(spec("{now:%H%M%S}-{counter:06d}", Reset()))
    slow.ids(counter, 2)
    fast_clock = Clock(clock.now + 100)
    fast = ManualReserver(memory_store, fast_clock)
    assert fast.ids(fast.counter(spec("{now:%H%M%S}-{counter:06d}", Reset())), 1) == ["120140-000010"]
    assert slow.ids(counter, 8)[-1] == "120000-000009"
    assert slow.ids(counter, 1) == ["120140-000020"]


def test_a_cycle_entered_by_a_fast_clock_is_shared_by_all(clock: Clock) -> None:
    memory_store = MemoryStore()
    slow, fast = ManualReserver(memory_store, clock), ManualReserver(memory_store, Clock(clock.now + DAY_SECONDS))
    of_slow, of_fast = slow.counter(spec()), fast.counter(spec())
    assert slow.ids(of_slow, 10)[-1] == "20261121-000009"
    assert fast.ids(of_fast, 1) == ["20261122-000000"]
    assert slow.ids(of_slow, 12)[-1].startswith("20261122-0000")
    assert not set(slow.ids(of_slow, 30)) & set(fast.ids(of_fast, 30))


def test_the_time_shown_before_a_retirement_binds_the_next_counter(reserver: ManualReserver, clock: Clock) -> None:
    counter = reserver.counter(spec("{now:%H%M%S}-{counter:06d}", Reset()))
    clock.now += 500
    reserver.ids(counter, 10)
    reserver.retire(counter)
    clock.now -= 500
    after = reserver.counter(spec("{now:%H%M%S}-{counter:06d}", Reset()), shown=counter.shown)
    assert reserver.ids(after, 1)[0].startswith("120820")


# Salt and scripts


def test_a_shown_salt_is_checked_before_a_number_is_used(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec("{counter:06d}-{salt:2}", Reset()))
    assert reserver.ids(counter, 1, "ab") == ["000000-ab"]
    for ask in (lambda: counter.attempt("x"), lambda: counter.attempt_many(3, "<>")):
        with pytest.raises(BadSalt):
            ask()
    assert counter.attempt("cd") == "000001-cd"


class Taking:
    """A script that takes several numbers for one ID."""

    def __init__(self, takes: int) -> None:
        self.takes = takes

    def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
        return f"{now.day:02d}:" + "+".join(str(take()) for _ in range(self.takes)) + salt


def scripted(reserver: ManualReserver, takes: int, **options: Any) -> Counter:
    rule = ScriptRule(spec("", fixed_length=False, **options), Taking(takes))
    return Counter(rule, "", reserver, reserver.clock, max_segment=1000)


def test_a_script_may_take_numbers_across_segments(reserver: ManualReserver) -> None:
    counter = scripted(reserver, 4)
    issued: list[int] = []
    for issued_id in (reserver.ids(counter, 1, "s")[0] for _ in range(30)):
        assert issued_id.startswith("21:")
        assert issued_id.endswith("s")
        issued += map(int, issued_id[3:-1].split("+"))
    assert issued == sorted(set(issued))


def test_a_script_that_takes_more_than_a_segment_gets_a_larger_one(reserver: ManualReserver) -> None:
    issued_id = reserver.ids(scripted(reserver, 60), 1)[0]
    numbers = list(map(int, issued_id[3:].split("+")))
    assert numbers == list(range(numbers[0], numbers[0] + 60))


def test_a_script_that_takes_nothing_makes_its_id(reserver: ManualReserver) -> None:
    counter = scripted(reserver, 0)
    assert reserver.ids(counter, 1) == ["21:"]


def test_the_numbers_of_one_script_are_of_one_cycle(clock: Clock) -> None:
    """The clock passes midnight while the script takes its numbers: it starts again, with the new date."""
    reserver = ManualReserver(MemoryStore(), clock)

    class Slow(Taking):
        def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
            first = take()
            if now.day == 21:
                clock.now = NOON + DAY_SECONDS
                reserver.orders.clear()
            return f"{now.day}:{first}+{take()}"

    counter = Counter(ScriptRule(spec("", fixed_length=False), Slow(2)), "", reserver, clock, max_segment=10)
    reserver.ids(counter, 3)
    assert [issued_id.partition(":")[0] for issued_id in reserver.ids(counter, 2)] == ["22", "22"]


# Threads


class Busy(ManualReserver):
    """A reserver with its own thread."""

    def __init__(self, memory_store: MemoryStore, clock: Callable[[], float]) -> None:
        super().__init__(memory_store, clock)
        self.awake = threading.Event()
        self.ended = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def order(self, counter: Counter) -> Any:
        future = super().order(counter)
        self.awake.set()
        return future

    def run(self) -> None:
        while not self.ended:
            self.awake.wait(1)
            self.awake.clear()
            self.work()

    def end(self) -> None:
        self.ended = True
        self.awake.set()
        self.thread.join()


@pytest.fixture
def busy() -> Iterator[Busy]:
    start = datetime(2026, 11, 21, 23, 59, 58, tzinfo=UTC).timestamp()
    began = counter_module.monotonic()
    reserver = Busy(MemoryStore(), lambda: start + (counter_module.monotonic() - began) * 6)
    yield reserver
    reserver.end()


@pytest.mark.parametrize("batch", [1, 7])
def test_threads_share_a_counter_across_midnight(busy: Busy, batch: int) -> None:
    long = spec("{now:%Y%m%d}-{counter:08d}", segment_size=50, max_counter=99_999_999)
    counter = busy.counter(long, max_segment=400)

    def run() -> list[str]:
        mine: list[str] = []
        until = counter_module.monotonic() + 0.7
        while counter_module.monotonic() < until:
            ids = counter.attempt_many(batch) if batch > 1 else [issued_id] if (issued_id := counter.attempt()) else []
            if not ids:
                counter.refill(60).result(5)
            mine += ids
        return mine

    with ThreadPoolExecutor(8) as pool:
        results = [asking.result() for asking in [pool.submit(run) for _ in range(8)]]
    every = [issued_id for mine in results for issued_id in mine]
    assert len(set(every)) == len(every) > 1000
    for mine in results:
        assert [issued_id[:8] for issued_id in mine] == sorted(issued_id[:8] for issued_id in mine)
    of_each = {
        day: sorted(int(issued_id[9:]) for issued_id in every if issued_id.startswith(day))
        for day in ("20261121", "20261122")
    }
    assert of_each["20261122"]
    for issued in of_each.values():
        assert issued == list(range(len(issued)))


def test_a_delivery_of_another_cycle_replaces_what_is_left(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec())
    reserver.ids(counter, 3)
    day = wall_of(datetime(2026, 11, 22))
    assert counter.deliver(Grant(range(0, 5), Cycle(day, day + DAY_SECONDS), day))
    assert counter.attempt() == "20261122-000000"
    assert counter.issued == 4
    assert counter.position == 0
    assert timedelta(seconds=counter.shown or 0) == datetime(2026, 11, 22) - datetime(1970, 1, 1)


def test_position_after_a_cycle_turned_is_the_last_number_issued(reserver: ManualReserver, clock: Clock) -> None:
    counter = reserver.counter(spec())
    reserver.ids(counter, 4)
    clock.now += DAY_SECONDS
    assert counter.attempt() is None
    assert counter.position == 3
    reserver.ids(counter, 1)
    assert counter.position == 0


# The size of segments


def refused_share(
    clock: Clock, *, names: int, per_second: int, reservation: float, patience: float = 2.0, size: int = 1000
) -> float:
    """The share of requests that get no number after the first ten seconds of steady demand, with one slow thread."""
    memory_store = MemoryStore()
    reserver = ManualReserver(memory_store, Clock(NOON))
    counters = [
        reserver.counter(spec("{now:%Y%m%d}{counter:010d}", max_counter=10**9, segment_size=size), str(n))
        for n in range(names)
    ]
    parked: list[deque[float]] = [deque() for _ in counters]
    busy_until: float | None = None
    requests = refused = 0
    steps = 200
    for tick in range(30 * steps):
        clock.now += 1 / steps
        late = tick > 10 * steps
        if busy_until is not None and clock.now >= busy_until:
            reserver.deliver_next()
            busy_until = None
        if busy_until is None and reserver.orders:
            reserver.reserve_next()
            busy_until = clock.now + reservation
        for counter, waiting in zip(counters, parked, strict=True):
            while waiting and counter.attempt() is not None:
                waiting.popleft()
            if waiting and not counter.remaining:
                counter.refill(1e9, 0)
            while waiting and clock.now - waiting[0] > patience:
                waiting.popleft()
                refused += late
            for _ in range(per_second // steps):
                requests += late
                if counter.attempt() is None:
                    try:
                        counter.refill(patience)
                        waiting.append(clock.now)
                    except Unavailable:
                        refused += late
    return refused / requests


@pytest.mark.parametrize("names", [1, 3])
@pytest.mark.parametrize("reservation", [0.1, 1.2])
def test_segments_grow_to_cover_the_time_of_a_reservation(ticks: Clock, names: int, reservation: float) -> None:
    assert refused_share(ticks, names=names, per_second=1000, reservation=reservation) <= 0.01


def test_small_segments_grow_too(ticks: Clock) -> None:
    assert refused_share(ticks, names=3, per_second=1000, reservation=1.2, size=1) <= 0.01


def test_the_demand_during_a_reservation_sets_the_next_size(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec(segment_size=10), max_segment=64)
    counter.refill(60, 5)
    reserver.work()
    assert counter.want == 10, "half a segment covers it"
    counter.attempt_many(10)
    counter.refill(60, 7)
    reserver.work()
    assert counter.want == 4 * (5 + 7), "five were given out after the order, seven were lacking"
    counter.attempt_many(10**6)
    counter.refill(60, 10**6)
    reserver.work()
    assert counter.want == 64


def test_an_outage_does_not_make_segments_huge(reserver: ManualReserver, ticks: Clock) -> None:
    counter = reserver.counter(spec(segment_size=10))
    counter.refill(60, 10_000)
    ticks.now += 1000
    reserver.work()
    assert counter.want == 4 * 100


def test_no_segment_is_larger_than_the_bound_of_the_site(reserver: ManualReserver) -> None:
    counter = reserver.counter(spec(segment_size=20_000_000), max_segment=100)
    counter.refill(60)
    reserver.work()
    assert counter.remaining == 100


# The tail of a segment


@pytest.mark.parametrize("start", [0, 2**62 - 100, 2**63])
@pytest.mark.parametrize("step", [1, 7])
def test_a_drained_segment_returns_its_tail(start: int, step: int) -> None:
    for count in (1, 2, 3, 10, 11):
        numbers = range(start, start + count * step, step)
        for used in range(count + 1):
            segment = Segment(Grant(numbers, Cycle(0, 1), 0))
            assert [next(segment.numbers) for _ in range(used)] == list(numbers[:used])
            assert list(segment.drain()) == list(numbers[used:])
            assert (segment.left, len(segment.drain())) == (0, 0)


def test_draining_makes_no_list_of_the_numbers() -> None:
    segment = Segment(Grant(range(2**40), Cycle(0, 1), 0))
    next(segment.numbers)
    assert segment.drain() == range(1, 2**40)


def test_a_drain_and_takers_share_nothing() -> None:
    for _ in range(30):
        segment = Segment(Grant(range(4000), Cycle(0, 1), 0))
        drawn: list[list[int]] = [[], []]
        started = threading.Barrier(3)

        def take(into: list[int], segment: Segment = segment, started: threading.Barrier = started) -> None:
            started.wait()
            while (number := next(segment.numbers, None)) is not None:
                into.append(number)

        threads = [threading.Thread(target=take, args=(into,)) for into in drawn]
        for thread in threads:
            thread.start()
        started.wait()
        tail = segment.drain()
        for thread in threads:
            thread.join()
        every = [*drawn[0], *drawn[1], *tail]
        assert len(set(every)) == len(every)
