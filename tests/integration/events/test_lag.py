"""The lag of a process, on both engines."""

from __future__ import annotations

from resty_django.events import runtime
from resty_django.events.channels import Channel
from resty_django.events.runtime import lag


def test_events_after_a_position_are_counted(channel: Channel) -> None:
    nothing = channel.last()
    assert channel.between(nothing, nothing) == 0
    channel.append(b"one", 0)
    first = channel.last()
    assert channel.between(first, first) == 0
    for record in (b"two", b"three"):
        channel.append(record, 0)
    assert channel.between(first, channel.last()) == 2
    assert channel.between(nothing, channel.last()) == 3


def test_a_process_that_does_not_listen_has_no_lag() -> None:
    runtime.reset()
    assert not lag().listening


def test_a_process_that_listens_is_behind_until_it_polls() -> None:
    runtime.reset()
    runtime.ensure()
    try:
        runtime.poll()
        assert lag().waiting == 0
        runtime.post("orders", "paid")
        runtime.post("orders", "paid")
        assert lag().waiting == 2
        runtime.poll()
        assert lag().waiting == 0
        assert lag().seconds > 0
    finally:
        runtime.reset()
