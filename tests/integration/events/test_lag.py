"""How far a process is behind, over both engines."""

from __future__ import annotations

from resty_django.events import process
from resty_django.events.channel import Channel
from resty_django.events.lag import lag


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
    process.reset()
    assert not lag().listening


def test_a_process_that_listens_is_behind_until_it_polls() -> None:
    process.reset()
    process.ensure()
    try:
        process.poll()
        assert lag().waiting == 0
        process.post("orders", "paid")
        process.post("orders", "paid")
        assert lag().waiting == 2
        process.poll()
        assert lag().waiting == 0
        assert lag().seconds > 0
    finally:
        process.reset()
