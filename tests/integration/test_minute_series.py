"""Series of counts in a dictionary of each engine: flushed once, listed, and kept while the store is down."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from resty_django.minute_series import records
from resty_django.minute_series.series import FLUSH_SECONDS, FlushPause, MinuteSeries
from resty_django.sansio import arun, run
from resty_django.shdict import SharedDict, Unavailable
from tests.dictionaries import Clock

NAMES = "counts:names"


class Count(NamedTuple):
    number: int = 0


def series(dictionary: SharedDict, clock: Clock, **options: Any) -> MinuteSeries:
    return MinuteSeries("counts", lambda: dictionary, clock, **{"names_key": NAMES, **options})


def total(one_process: MinuteSeries, name: str) -> int:
    return records.CountHistory(run(one_process.load(name)), Count(), 0.0).total.number


async def test_sums_of_processes_are_added_once(dictionary: SharedDict, clock: Clock) -> None:
    first, second = series(dictionary, clock), series(dictionary, clock)
    for _ in range(2):
        run(first.flush("a", (3,)))
        await arun(second.flush("a", (4,)))
    run(first.flush("a", (5,)))
    assert total(second, "a") == 9
    assert first.unflushed("a", (5,)) == ()
    first.reset()
    assert first.unflushed("a", (5,)) == (5,)


def test_counts_that_cannot_be_flushed_stay_unflushed(
    dictionary: SharedDict, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_process = series(dictionary, clock)
    run(one_process.flush("a", (1,)))

    def down(*args: Any) -> None:
        raise Unavailable("down")

    with monkeypatch.context() as patch:
        patch.setattr(dictionary, "update", down)
        with pytest.raises(Unavailable):
            run(one_process.flush("a", (2,)))
    assert one_process.unflushed("a", (3,)) == (2,)
    run(one_process.flush("a", (3,)))
    assert total(one_process, "a") == 3


def test_counts_are_added_once_though_their_name_cannot_be_listed_again(
    dictionary: SharedDict, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_process = series(dictionary, clock)
    run(one_process.listed_as("a"))
    update = dictionary.update

    def fails_for_names(key: str, change: Any) -> Any:
        if key == NAMES:
            raise Unavailable("down")
        return update(key, change)

    with monkeypatch.context() as patch:
        patch.setattr(dictionary, "update", fails_for_names)
        with pytest.raises(Unavailable):
            run(one_process.flush("a", (1,)))
    run(one_process.flush("a", (1,)))
    assert total(one_process, "a") == 1


def test_names_are_listed_again_where_the_list_was_lost(dictionary: SharedDict, clock: Clock) -> None:
    one_process = series(dictionary, clock)
    run(one_process.flush("a", (1,)))
    dictionary.flush_all()
    run(one_process.flush("a", (2,)))
    assert one_process.names() == ["a"]
    dictionary.delete(NAMES)
    run(one_process.flush("a", (3,)))
    assert one_process.names() == []
    clock.advance(600)
    run(one_process.flush("a", (4,)))
    assert one_process.names() == ["a"]


@pytest.mark.parametrize(("others", "names"), [("", ["a", "b"]), ("rest", ["a", "b", "rest"])])
def test_names_beyond_the_limit_are_counted_under_others(
    dictionary: SharedDict, clock: Clock, others: str, names: list[str]
) -> None:
    one_process = series(dictionary, clock, most_names=2, others=others)
    for name in "abcd":
        run(one_process.flush(name, (1,)))
    assert one_process.names() == names
    assert [total(one_process, name) for name in ("a", "c", "rest")] == ([1, 0, 2] if others else [1, 1, 0])


def test_a_record_that_nobody_adds_to_ends_with_its_life(dictionary: SharedDict, clock: Clock) -> None:
    one_process = series(dictionary, clock, life=100.0)
    run(one_process.flush("a", (1,)))
    clock.advance(99)
    run(one_process.flush("a", (2,)))
    clock.advance(99)
    assert total(one_process, "a") == 2
    clock.advance(2)
    assert total(one_process, "a") == 0


def test_the_pause_grows_with_each_failure_and_ends_with_a_success() -> None:
    pause = FlushPause()
    assert [pause.after(flushed=False) for _ in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    assert pause.after(flushed=True) == pause.seconds == FLUSH_SECONDS
    shorter = FlushPause(longest=5.0)
    assert [shorter.after(flushed=False) for _ in range(3)] == [2, 4, 5]
