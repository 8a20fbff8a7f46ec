"""Lists of names, records, options and steps."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.conf.sections.core import EventsSettings
from resty_django.events import BadEvent, BadOption, NotEncodable, UnknownEvent, event_list, events
from resty_django.events.options import EventOptions
from resty_django.events.wire import Event, check, decode, encode
from resty_django.sansio import Step, Steps, arun, run

# --- names ---


def test_a_list_of_events_knows_its_names_and_its_source() -> None:
    names = event_list("orders", "placed", "paid")
    assert (names.placed, names["paid"], names.source) == ("placed", "paid", "orders")
    assert list(names) == ["placed", "paid"]
    assert dict(names) == {"placed": "placed", "paid": "paid"}
    assert "paid" in names
    assert "lost" not in names


def test_an_unknown_event_is_an_error() -> None:
    names = event_list("orders", "placed")
    with pytest.raises(UnknownEvent, match=r"'payed' .* 'orders'"):
        _ = names.payed
    with pytest.raises(UnknownEvent):
        names["payed"]
    assert not hasattr(names, "payed")
    assert names.get("payed") is None


def test_a_list_of_events_cannot_be_changed() -> None:
    names = event_list("orders", "placed")
    with pytest.raises(AttributeError):
        names.placed = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del names.placed
    with pytest.raises(TypeError):
        names["placed"] = "x"  # type: ignore[index]


def test_a_list_of_events_can_be_copied() -> None:
    names = event_list("orders", "placed")
    for copied in (copy.deepcopy(names), pickle.loads(pickle.dumps(names))):  # noqa: S301
        assert (copied.source, copied) == ("orders", names)
    assert repr(names) == "event_list('orders', 'placed')"


def test_the_events_of_the_package_have_their_names() -> None:
    assert (events.source, *events) == ("resty-worker-events", "started", "stopping", "missed")


# --- records ---

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(
    source=st.text(min_size=1), event=st.text(min_size=1), data=plain, unique=st.none() | st.text(), pid=st.integers()
)
def test_a_record_survives_a_round_trip(source: str, event: str, data: Any, unique: str | None, pid: int) -> None:
    posted = Event(source, event, data, unique, pid)
    assert decode(encode(posted)) == posted


def test_a_record_is_json_with_the_fields_of_lua_resty_worker_events() -> None:
    assert encode(Event("s", "e", (1, "ü"), "u", 7)) == (
        '{"source":"s","event":"e","data":[1,"ü"],"unique":"u","pid":7}'.encode()
    )


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "data",
    [object(), b"x", {1, 2}, float("nan"), datetime.now(UTC), {("a",): 1}, CYCLE],
    ids=lambda data: type(data).__name__,
)
def test_data_that_json_cannot_hold_is_refused(data: Any) -> None:
    with pytest.raises(NotEncodable, match=r'^failed posting event "e" by "s"'):
        encode(Event("s", "e", data))


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\xff",
        b"7",
        b"[]",
        b"{}",
        b'{"source":"s"}',
        b'{"source":"","event":"e"}',
        b'{"source":1,"event":"e"}',
        b'{"source":"s","event":"e","unique":7}',
        b'{"source":"s","event":"e","pid":"7"}',
    ],
)
def test_decode_rejects_malformed_records(record: bytes) -> None:
    with pytest.raises(ValueError):
        decode(record)


@pytest.mark.parametrize("wrong", ["", None, 7, b"x"])
def test_source_and_event_are_texts(wrong: Any) -> None:
    with pytest.raises(BadEvent, match=r"^source"):
        check(wrong, "")
    with pytest.raises(BadEvent, match=r"^event"):
        check("s", wrong)


# --- options ---


def options() -> EventOptions:
    return EventOptions.of(EventsSettings())


def test_options_come_from_the_settings() -> None:
    assert options() == EventOptions(timeout=2.0, interval=0.01, retries=999)


def test_omitted_options_keep_their_values() -> None:
    changed = options().changed(interval=3, retries=None)
    assert changed == EventOptions(timeout=2.0, interval=3, retries=999)
    assert changed.changed() == changed


@pytest.mark.parametrize(
    "given",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"interval": -0.1},
        {"interval": "1"},
        {"interval": True},
        {"interval": float("nan")},
        {"interval": float("inf")},
        {"retries": -1},
        {"retries": 1.5},
    ],
    ids=str,
)
def test_wrong_options_are_named(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(BadOption, match=f"^{name}"):
        options().changed(**given)


# --- steps ---


def course() -> Steps[list[Any]]:
    replies: list[Any] = [(yield Step(sync_add, async_add, (1, 2)))]
    try:
        yield Step(sync_fail, async_fail)
    except ZeroDivisionError as error:
        replies.append(error)
    replies.append((yield Step(sync_add, async_add, (replies[0], 1))))
    return replies


def sync_add(first: int, second: int) -> int:
    return first + second


async def async_add(first: int, second: int) -> int:
    await asyncio.sleep(0)
    return first + second


def sync_fail() -> None:
    raise ZeroDivisionError


async def async_fail() -> None:
    raise ZeroDivisionError


def ends_badly() -> Steps[None]:
    yield Step(sync_fail, async_fail)


async def test_steps_are_the_same_for_sync_and_async_code() -> None:
    for replies in (run(course()), await arun(course())):
        assert replies[0] == 3
        assert isinstance(replies[1], ZeroDivisionError)
        assert replies[2] == 4
    with pytest.raises(ZeroDivisionError):
        run(ends_badly())
    with pytest.raises(ZeroDivisionError):
        await arun(ends_badly())
