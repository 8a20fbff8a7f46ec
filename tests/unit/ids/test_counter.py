"""Counters in memory: order, text and time of what they give out, and when they ask for more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resty_django.ids.engine import counter as counter_module
from resty_django.ids.engine.counter import Counter, Retired
from resty_django.ids.engine.cycle import DAY, Cycle, Reset
from resty_django.ids.engine.moment import Moment, wall_at, wall_of
from resty_django.ids.engine.rule import RuleSpec, ScriptRule
from resty_django.ids.engine.segment import Grant
from resty_django.ids.errors import BadSalt, Exhausted, Unavailable
from tests.unit.ids.shelf import Clerk, Shelf

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


class Time:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Ticks:
    """The monotonic clock, by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    made = Ticks()
    monkeypatch.setattr(counter_module, "monotonic", made)
    return made


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def clerk(clock: Time) -> Clerk:
    return Clerk(Shelf(), clock)


def spec(source: str = "{now:%Y%m%d}-{counter:06d}", reset: Reset = Reset(DAY), **options: Any) -> RuleSpec:  # noqa: B008
    return RuleSpec(name="r", source=source, reset=reset, **{"max_counter": 999_999, "segment_size": 10, **options})


def numbers(ids: list[str]) -> list[int]:
    return [int(made.rpartition("-")[2]) for made in ids]


def test_nothing_is_given_out_before_a_reservation(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    assert counter.attempt() is None
    assert counter.attempt_many(5) == []
    future = counter.refill(1)
    assert counter.attempt() is None
    assert not future.done()
    clerk.reserve_next()
    assert counter.attempt() is None
    clerk.deliver_next()
    assert future.done()
    assert counter.attempt() == "20261121-000000"


def test_numbers_come_in_order_across_segments(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    assert numbers(clerk.ids(counter, 95)) == list(range(95))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=20), st.integers(1, 3), st.integers(1, 12))
def test_no_number_is_lost_or_given_twice(steps: list[tuple[int, bool]], step: int, size: int) -> None:
    clerk = Clerk(Shelf(), Time(), step=step)
    counter = clerk.counter(spec(segment_size=size))
    seen: list[int] = []
    for count, work in steps:
        seen += numbers(counter.attempt_many(count))
        single = counter.attempt()
        seen += numbers([single]) if single else []
        if not single:
            counter.refill(60)
        if work:
            clerk.work()
    assert seen == [step * i for i in range(len(seen))]
    assert counter.issued == len(seen)
    assert counter.position == (seen[-1] if seen else None)
    clerk.work()
    clerk.retire(counter)
    assert counter.issued == len(seen)
    after = clerk.counter(spec(segment_size=size))
    assert numbers(clerk.ids(after, 1)) == [step * len(seen)]


def test_the_next_segment_is_ordered_when_half_is_used(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    assert len(clerk.ids(counter, 5)) == 5
    assert not clerk.orders
    assert counter.attempt()
    assert len(clerk.orders) == 1
    for _ in range(4):
        assert counter.attempt()
    assert len(clerk.orders) == 1
    clerk.work()
    assert counter.attempt() == "20261121-000010"
    assert counter.remaining > 0


def test_a_batch_that_passes_the_half_orders_the_next_segment(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    clerk.ids(counter, 1)
    counter.attempt_many(7)
    assert len(clerk.orders) == 1


def test_a_segment_of_one_number_works(clerk: Clerk) -> None:
    counter = clerk.counter(spec(segment_size=1), max_segment=1)
    assert numbers(clerk.ids(counter, 20)) == list(range(20))


def test_segments_fit_the_demand(clerk: Clerk, ticks: Ticks) -> None:
    counter = clerk.counter(spec(), max_segment=35)
    clerk.ids(counter, 200)
    assert counter.want == 35
    wants = []
    for _ in range(20):
        ticks.now += 61
        clerk.ids(counter, 5)
        wants.append(counter.want)
    assert wants == sorted(wants, reverse=True)
    assert wants[-1] == 10


def test_a_finished_order_is_not_repeated_by_a_latecomer(clerk: Clerk) -> None:
    """One that found nothing, and was slow to ask, while the segment came for another."""
    counter = clerk.counter(spec())
    assert counter.attempt() is None
    counter.refill(60)
    clerk.work()
    late = counter.refill(60)
    assert late.done()
    assert not clerk.orders
    assert numbers(clerk.ids(counter, 25)) == list(range(25))


def test_all_who_wait_join_one_order(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    assert counter.refill(60) is counter.refill(60)
    assert len(clerk.orders) == 1


def test_an_order_that_takes_too_long_is_unavailable(clerk: Clerk, ticks: Ticks) -> None:
    counter = clerk.counter(spec())
    counter.refill(2)
    ticks.now += 2.1
    with pytest.raises(Unavailable, match="try again"):
        counter.refill(2)
    clerk.work()
    assert counter.attempt() == "20261121-000000"


def test_a_refusal_holds_for_a_while_and_then_is_tried_again(clerk: Clerk, ticks: Ticks) -> None:
    counter = clerk.counter(spec())
    counter.refill(2)
    clerk.orders.clear()
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
    clerk.work()
    assert counter.attempt() == "20261121-000000"


def test_reserved_numbers_are_given_out_while_the_store_is_down(clerk: Clerk, ticks: Ticks) -> None:
    counter = clerk.counter(spec())
    clerk.ids(counter, 3)
    clerk.shelf.down = True
    seen = []
    while (made := counter.attempt()) is not None:
        seen.append(made)
        clerk.work()
    assert numbers(seen) == list(range(3, 10))
    with pytest.raises(Unavailable):
        clerk.ids(counter, 1)
    clerk.shelf.down = False
    assert numbers(clerk.ids(counter, 12)) == list(range(10, 22))


def test_the_next_segment_is_asked_for_again_after_a_refusal(clerk: Clerk, clock: Time, ticks: Ticks) -> None:
    """Background orders that failed are repeated before the numbers run out."""
    counter = clerk.counter(spec(segment_size=100))
    clerk.ids(counter, 51)
    assert len(clerk.orders) == 1
    clerk.orders.clear()
    counter.refuse(Unavailable("down"), 0.5)
    assert counter.attempt()
    assert not clerk.orders
    ticks.now += 1.1
    clock.now += 1.1
    assert counter.attempt()
    assert len(clerk.orders) == 1


def test_exhausted_until_the_cycle_turns(clerk: Clerk, clock: Time) -> None:
    counter = clerk.counter(spec(max_counter=24))
    assert numbers(clerk.ids(counter, 25)) == list(range(25))
    for _ in range(3):
        with pytest.raises(Exhausted):
            clerk.ids(counter, 1)
    clock.now += DAY / 2
    assert clerk.ids(counter, 2) == ["20261122-000000", "20261122-000001"]


# Closing


def test_a_closed_counter_gives_out_nothing_and_returns_its_tails(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    clerk.ids(counter, 6)
    clerk.work()
    tails = counter.close()
    assert [tail for _, tail in tails] == [range(10, 30), range(6, 10)]
    assert counter.closed
    for ask in (counter.attempt, lambda: counter.attempt_many(2), lambda: counter.refill(1)):
        with pytest.raises(Retired):
            ask()
    assert counter.close() == []
    assert (counter.remaining, counter.issued) == (0, 6)


def test_a_segment_that_comes_after_the_close_goes_back(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    counter.refill(60)
    clerk.reserve_next()
    counter.close()
    clerk.deliver_next()
    assert clerk.shelf.rows[("", 0)].bound == 0


class Calling(Time):
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


def test_ids_made_before_their_counter_was_closed_are_handed_out() -> None:
    """The counter is retired in the middle of a batch: what the batch has is not burnt."""
    clock = Calling()
    clerk = Clerk(Shelf(), clock)
    counter = clerk.counter(spec())
    clerk.ids(counter, 1)
    clock.reads, clock.act = 2, lambda: clerk.retire(counter)
    made = counter.attempt_many(20)
    assert numbers(made) == [1, 2, 3, 4]
    assert numbers(clerk.ids(clerk.counter(spec()), 1)) == [5]


def test_ids_of_a_script_made_before_its_counter_was_closed_are_handed_out() -> None:
    clerk = Clerk(Shelf(), Time())

    class Closing(Taking):
        def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
            number = take()
            if number == 2:
                counter.close()
                take()
            return str(number)

    counter = Counter(ScriptRule(spec("", fixed_length=False), Closing(1)), "", clerk, clerk.clock, max_segment=10)
    clerk.ids(counter, 1)
    assert counter.attempt_many(20) == ["1"]
    with pytest.raises(Retired):
        counter.attempt_many(1)


# Time


def test_midnight_is_the_same_for_text_and_number(clerk: Clerk, clock: Time) -> None:
    counter = clerk.counter(spec(timezone="Europe/Berlin"))
    clock.now = datetime(2026, 11, 21, 23, 59, 59, 999999, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    assert clerk.ids(counter, 3) == ["20261121-000000", "20261121-000001", "20261121-000002"]
    clock.now += 0.000002
    assert clerk.ids(counter, 2) == ["20261122-000000", "20261122-000001"]


def test_the_text_follows_the_clock_to_the_second(clerk: Clerk, clock: Time) -> None:
    counter = clerk.counter(spec("{now:%H:%M:%S}-{counter:06d}", Reset(), timezone="Asia/Kathmandu"))
    for _ in range(40):
        expected = datetime.fromtimestamp(clock.now, ZoneInfo("Asia/Kathmandu")).strftime("%H:%M:%S")
        assert clerk.ids(counter, 1)[0].startswith(expected)
        clock.now += 0.37


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29)),
        ("Europe/Berlin", datetime(2026, 10, 25)),
        ("America/New_York", datetime(2026, 11, 1)),
        ("Australia/Lord_Howe", datetime(2026, 4, 4)),
        ("Australia/Lord_Howe", datetime(2026, 10, 3)),
        ("Asia/Kolkata", datetime(2026, 4, 4)),
        ("America/Havana", datetime(2026, 11, 1)),
        ("America/Santiago", datetime(2026, 4, 5)),
    ],
)
@pytest.mark.parametrize(
    ("source", "reset"),
    [
        ("{now:%Y%m%d}-{counter:06d}", Reset(DAY)),
        ("{now:%Y%m%d%H}-{counter:06d}", Reset(3600)),
        ("{now:%Y%m%d%H%M}-{counter:06d}", Reset(1800)),
        ("{now:%Y%m%d%H%M%S}-{counter:06d}", Reset(60)),
        ("{now:%y%m}-{counter:06d}", Reset(calendar="month")),
    ],
)
def test_no_id_comes_twice_when_clocks_change(zone: str, around: datetime, source: str, reset: Reset) -> None:
    """Four days in steps of 7 minutes, with three processes that are restarted now and then."""
    shelf = Shelf()
    clock = Time(around.replace(tzinfo=UTC).timestamp() - DAY)
    clerks = [Clerk(shelf, clock) for _ in range(3)]
    rule = spec(source, reset, timezone=zone, segment_size=3)
    counters = [clerk.counter(rule, max_segment=3) for clerk in clerks]
    seen: set[str] = set()
    last = [""] * 3
    end = clock.now + 3 * DAY
    turn = 0
    while clock.now < end:
        clock.now += 421.3
        turn += 1
        at = turn % 3
        for made in clerks[at].ids(counters[at], 2):
            assert made not in seen
            seen.add(made)
            assert made.partition("-")[0] >= last[at]
            last[at] = made.partition("-")[0]
        if turn % 50 == 0:
            clerks[at].retire(counters[at])
            counters[at] = clerks[at].counter(rule, max_segment=3, shown=counters[at].shown)


def test_the_repeated_hour_goes_on_where_the_first_ended(clerk: Clerk, clock: Time) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    counter = clerk.counter(spec("{now:%H%M}-{counter:06d}{now:%y%m%d}", Reset(3600), timezone="Europe/Berlin"))
    clock.now = datetime(2026, 10, 25, 2, 59, tzinfo=berlin).timestamp()
    assert clerk.ids(counter, 1) == ["0259-000000261025"]
    clock.now = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=berlin).timestamp()
    assert clerk.ids(counter, 1) == ["0259-000001261025"]
    clock.now = datetime(2026, 10, 25, 3, 0, tzinfo=berlin).timestamp()
    assert clerk.ids(counter, 1) == ["0300-000000261025"]


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.floats(-2 * DAY, 2 * DAY, width=32), st.integers(1, 12)), max_size=30),
    st.sampled_from(
        [Reset(), Reset(1), Reset(60), Reset(3600), Reset(DAY), Reset(7 * DAY), Reset(5000), Reset(calendar="month")]
    ),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"]),
)
def test_shown_time_never_runs_backwards_and_stays_in_its_cycle(
    jumps: list[tuple[float, int]], reset: Reset, zone: str
) -> None:
    clock = Time(datetime(2026, 10, 25, tzinfo=UTC).timestamp())
    clerk = Clerk(Shelf(), clock)
    counter = clerk.counter(spec("{now:%Y%m%d%H%M%S}-{counter}", reset, timezone=zone))
    last = ""
    seen: set[tuple[int, int]] = set()
    for jump, count in jumps:
        clock.now += jump
        for made in clerk.ids(counter, count):
            shown, _, number = made.partition("-")
            assert shown >= last
            last = shown
            wall = wall_of(datetime.strptime(shown, "%Y%m%d%H%M%S"))
            assert wall >= wall_at(clock.now, ZoneInfo(zone))
            key = (reset.cycle(wall).start, int(number))
            assert key not in seen
            seen.add(key)
        assert counter.shown == wall_of(datetime.strptime(last, "%Y%m%d%H%M%S"))


def test_a_segment_shows_no_time_before_what_others_have_shown(clock: Time) -> None:
    """Another process's clock is ahead: what is reserved after it shows its time, the spare segment too."""
    shelf = Shelf()
    counter = (slow := Clerk(shelf, clock)).counter(spec("{now:%H%M%S}-{counter:06d}", Reset()))
    slow.ids(counter, 2)
    fast_clock = Time(clock.now + 100)
    fast = Clerk(shelf, fast_clock)
    assert fast.ids(fast.counter(spec("{now:%H%M%S}-{counter:06d}", Reset())), 1) == ["120140-000010"]
    assert slow.ids(counter, 8)[-1] == "120000-000009"
    assert slow.ids(counter, 1) == ["120140-000020"]


def test_a_cycle_entered_by_a_fast_clock_is_shared_by_all(clock: Time) -> None:
    shelf = Shelf()
    slow, fast = Clerk(shelf, clock), Clerk(shelf, Time(clock.now + DAY))
    one, other = slow.counter(spec()), fast.counter(spec())
    assert slow.ids(one, 10)[-1] == "20261121-000009"
    assert fast.ids(other, 1) == ["20261122-000000"]
    assert slow.ids(one, 12)[-1].startswith("20261122-0000")
    assert not set(slow.ids(one, 30)) & set(fast.ids(other, 30))


def test_what_was_shown_before_a_retirement_binds_the_next_counter(clerk: Clerk, clock: Time) -> None:
    counter = clerk.counter(spec("{now:%H%M%S}-{counter:06d}", Reset()))
    clock.now += 500
    clerk.ids(counter, 10)
    clerk.retire(counter)
    clock.now -= 500
    after = clerk.counter(spec("{now:%H%M%S}-{counter:06d}", Reset()), shown=counter.shown)
    assert clerk.ids(after, 1)[0].startswith("120820")


# Salt and scripts


def test_a_shown_salt_is_checked_before_a_number_is_used(clerk: Clerk) -> None:
    counter = clerk.counter(spec("{counter:06d}-{salt:2}", Reset()))
    assert clerk.ids(counter, 1, "ab") == ["000000-ab"]
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


def scripted(clerk: Clerk, takes: int, **options: Any) -> Counter:
    rule = ScriptRule(spec("", fixed_length=False, **options), Taking(takes))
    return Counter(rule, "", clerk, clerk.clock, max_segment=1000)


def test_a_script_may_take_numbers_across_segments(clerk: Clerk) -> None:
    counter = scripted(clerk, 4)
    seen: list[int] = []
    for made in (clerk.ids(counter, 1, "s")[0] for _ in range(30)):
        assert made.startswith("21:")
        assert made.endswith("s")
        seen += map(int, made[3:-1].split("+"))
    assert seen == sorted(set(seen))


def test_a_script_that_takes_more_than_a_segment_gets_a_larger_one(clerk: Clerk) -> None:
    made = clerk.ids(scripted(clerk, 60), 1)[0]
    taken = list(map(int, made[3:].split("+")))
    assert taken == list(range(taken[0], taken[0] + 60))


def test_a_script_that_takes_nothing_makes_its_id(clerk: Clerk) -> None:
    counter = scripted(clerk, 0)
    assert clerk.ids(counter, 1) == ["21:"]


def test_the_numbers_of_one_script_are_of_one_cycle(clock: Time) -> None:
    """The clock passes midnight while the script takes its numbers: it starts again, with the new date."""
    clerk = Clerk(Shelf(), clock)

    class Slow(Taking):
        def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
            first = take()
            if now.day == 21:
                clock.now = NOON + DAY
                clerk.orders.clear()
            return f"{now.day}:{first}+{take()}"

    counter = Counter(ScriptRule(spec("", fixed_length=False), Slow(2)), "", clerk, clock, max_segment=10)
    clerk.ids(counter, 3)
    assert [made.partition(":")[0] for made in clerk.ids(counter, 2)] == ["22", "22"]


# Threads


class Busy(Clerk):
    """A desk with a thread of its own."""

    def __init__(self, shelf: Shelf, clock: Callable[[], float]) -> None:
        super().__init__(shelf, clock)
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
    made = Busy(Shelf(), lambda: start + (counter_module.monotonic() - began) * 3)
    yield made
    made.end()


@pytest.mark.parametrize("batch", [1, 7])
def test_threads_share_a_counter_across_midnight(busy: Busy, batch: int) -> None:
    long = spec("{now:%Y%m%d}-{counter:08d}", segment_size=50, max_counter=99_999_999)
    counter = busy.counter(long, max_segment=400)
    results: list[list[str]] = []

    def run() -> None:
        mine: list[str] = []
        until = counter_module.monotonic() + 1.2
        while counter_module.monotonic() < until:
            made = counter.attempt_many(batch) if batch > 1 else [found] if (found := counter.attempt()) else []
            if not made:
                counter.refill(60).result(5)
            mine += made
        results.append(mine)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [made for mine in results for made in mine]
    assert len(results) == 8
    assert len(set(every)) == len(every) > 1000
    for mine in results:
        assert [made[:8] for made in mine] == sorted(made[:8] for made in mine)
    of_each = {day: sorted(int(made[9:]) for made in every if made.startswith(day)) for day in ("20261121", "20261122")}
    assert of_each["20261122"]
    for taken in of_each.values():
        assert taken == list(range(len(taken)))


def test_a_delivery_of_another_cycle_replaces_what_is_left(clerk: Clerk) -> None:
    counter = clerk.counter(spec())
    clerk.ids(counter, 3)
    day = wall_of(datetime(2026, 11, 22))
    assert counter.deliver(Grant(range(0, 5), Cycle(day, day + DAY), day))
    assert counter.attempt() == "20261122-000000"
    assert counter.issued == 4
    assert counter.position == 0
    assert timedelta(seconds=counter.shown or 0) == datetime(2026, 11, 22) - datetime(1970, 1, 1)


def test_position_after_a_cycle_turned_is_the_last_number_given_out(clerk: Clerk, clock: Time) -> None:
    counter = clerk.counter(spec())
    clerk.ids(counter, 4)
    clock.now += DAY
    assert counter.attempt() is None
    assert counter.position == 3
    clerk.ids(counter, 1)
    assert counter.position == 0
