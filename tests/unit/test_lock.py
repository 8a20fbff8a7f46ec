"""The pure parts of locks: the pauses between two tries, the options, and keys made of arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.lock import Lock, NotLocked, lock, locked, pauses


def milliseconds(**options: float) -> list[int]:
    settings = {"step": 0.001, "ratio": 2, "max_step": 0.5, "timeout": 5, **options}
    return [round(pause * 1000) for pause in pauses(**settings)]


def test_pauses_double_up_to_the_longest_and_end_with_what_remains() -> None:
    assert milliseconds() == [1, 2, 4, 8, 16, 32, 64, 128, 256, *[500] * 8, 489]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"step": 3, "timeout": 0.02}, [20]),
        ({"step": 0.01, "ratio": 1, "timeout": 0.035}, [10, 10, 10, 5]),
        ({"step": 0.008, "ratio": 0.5, "timeout": 0.02}, [8, 4, 2, 1, 1, 1, 1, 1, 1]),
        ({"step": 0.01, "max_step": 0.015, "timeout": 0.05}, [10, 15, 15, 10]),
    ],
)
def test_pauses_follow_the_options(options: dict[str, float], expected: list[int]) -> None:
    assert milliseconds(**options) == expected


@given(
    step=st.floats(0.0005, 2),
    ratio=st.floats(0.1, 5),
    max_step=st.floats(0.01, 2),
    timeout=st.floats(0, 10),
)
def test_pauses_add_up_to_the_timeout(step: float, ratio: float, max_step: float, timeout: float) -> None:
    waits = list(pauses(step, ratio, max_step, timeout))
    assert sum(waits) == pytest.approx(timeout)
    assert all(pause > 0 for pause in waits)
    assert all(pause <= max_step for pause in waits[1:])


@pytest.mark.parametrize(
    "options",
    [{"exptime": 0}, {"step": 0}, {"ratio": -1}, {"max_step": 0}, {"timeout": -0.1}, {"jitter": -0.1}, {"jitter": 1.1}],
)
def test_wrong_options_are_named(options: dict[str, float]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"^{name}"):
        Lock(**options)
    with pytest.raises(ValueError, match=f"^{name}"):
        locked("key", **options)


def test_the_timeout_is_at_most_the_exptime() -> None:
    assert Lock(exptime=2).timeout == 2
    assert Lock(exptime=2, timeout=0.5).timeout == 0.5


def test_creating_a_lock_needs_no_dictionary() -> None:
    """Decorators may be used in modules that are imported before the settings are configured."""
    with pytest.raises(NotLocked, match=r"^unlocked"):
        Lock("no such dictionary").release()
    lock("key", "no such dictionary")


class Taken(Exception):
    """The error of every dictionary in these tests."""


class Asked:
    """A dictionary that records the key of a lock."""

    def add(self, key: object, token: bytes, ttl: float) -> None:
        raise Taken(key)


def key_of(template: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    with pytest.raises(Taken) as caught:
        locked(template, Asked())(function)(*args, **kwargs)  # type: ignore[arg-type]
    return caught.value.args[0]


def report(id: int, kind: str = "month", *rest: str, strict: bool = False) -> None: ...


def test_a_key_is_made_of_the_arguments_of_a_call() -> None:
    assert key_of("report:{id}", report, 7) == "report:7"
    assert key_of("report:{id}:{kind}", report, id=7) == "report:7:month"
    assert key_of("report:{id}:{kind}:{strict}", report, 7, "year", strict=True) == "report:7:year:True"
    assert key_of("{{{id}}}", report, 7) == "{7}"
    assert key_of("reports", report, 7) == "reports"


def test_values_are_not_treated_as_templates() -> None:
    assert key_of("report:{kind}", report, 7, "{id}{strict.__class__}") == "report:{id}{strict.__class__}"


def test_a_function_may_make_the_key() -> None:
    assert key_of(lambda id, kind="day": (kind, id), report, 7) == ("day", 7)


@pytest.mark.parametrize(
    "template", ["{id.real}", "{id[0]}", "{id!r}", "{id:05d}", "{}", "{0}", "{nobody}", "{id:{kind}}"]
)
def test_fields_are_plain_names_of_arguments(template: str) -> None:
    with pytest.raises(ValueError, match="field"):
        locked(template)(report)


def test_a_decorated_function_keeps_its_name() -> None:
    decorated = locked("reports")(report)
    assert decorated.__name__ == "report"
    assert decorated.__wrapped__ is report  # type: ignore[attr-defined]


def test_jitter_shortens_pauses_and_keeps_their_sum() -> None:
    settings = {"step": 0.001, "ratio": 2.0, "max_step": 0.5, "timeout": 5.0}
    plain, shortened = list(pauses(**settings)), list(pauses(**settings, jitter=0.5))
    assert sum(shortened) == pytest.approx(5.0)
    assert len(shortened) > len(plain)
    assert all(0.25 <= pause <= 0.5 for pause in shortened[10:-1])
    assert len({round(pause, 6) for pause in shortened[10:-1]}) > 1
    assert list(pauses(**settings, jitter=0.0)) == plain
