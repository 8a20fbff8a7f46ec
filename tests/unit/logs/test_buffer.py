"""The rules of a message that arrives, the two levels, and what is sent again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resty_django.logs.buffer import AddResult, Buffer, Chunk, ResendBuffer

KEPT, FLUSH, DROPPED = AddResult.KEPT, AddResult.FLUSH, AddResult.DROPPED
RULES = [  # bytes that wait, bytes of the message, what becomes of it; flush limit 10, drop limit 20
    (0, 0, KEPT),
    (0, 9, KEPT),
    (0, 10, FLUSH),
    (8, 1, KEPT),
    (9, 1, FLUSH),
    (9, 11, FLUSH),
    (9, 12, DROPPED),
    (0, 20, FLUSH),
    (0, 21, DROPPED),
    (20, 0, FLUSH),
    (20, 1, DROPPED),
]


def test_a_message_is_kept_or_dropped_by_the_table() -> None:
    for size, length, verdict in RULES:
        buffer = Buffer(10, 20)
        buffer.add(b"o" * size)
        assert buffer.add(b"n" * length) is verdict, (size, length)
        dropped = verdict is DROPPED
        assert (buffer.size, buffer.dropped) == (size + (0 if dropped else length), int(dropped))


def test_the_newest_message_is_dropped() -> None:
    buffer = Buffer(2, 6)
    for message in (b"one", b"two", b"three"):
        buffer.add(message)
    buffer.advance()
    assert buffer.chunk(100) == Chunk(b"onetwo", 2)


def test_size_falls_when_a_chunk_was_sent_and_not_before() -> None:
    buffer = Buffer(10, 20)
    for message in (b"one ", b"two ", b"three "):
        buffer.add(message)
    buffer.advance()
    chunk = buffer.chunk(8)
    assert chunk == Chunk(b"one two ", 2)
    assert (buffer.size, len(buffer)) == (14, 3)
    buffer.release(chunk)
    assert (buffer.size, len(buffer)) == (6, 1)
    last = buffer.chunk(8)
    assert last == Chunk(b"three ", 1)
    buffer.refuse(last)
    assert (buffer.size, len(buffer), buffer.dropped, buffer.chunk(8)) == (0, 0, 1, None)


def test_a_retry_carries_newer_messages_behind_the_older_ones() -> None:
    buffer = Buffer(10, 100)
    buffer.add(b"1")
    buffer.advance()
    first = buffer.chunk(100)
    buffer.add(b"2")
    assert buffer.chunk(100) == first  # what arrives meanwhile is on the other level
    buffer.advance()
    assert buffer.chunk(100) == Chunk(b"12", 2)


@given(st.lists(st.binary(max_size=12), max_size=30), st.integers(1, 20), st.lists(st.booleans(), max_size=60))
def test_messages_leave_whole_in_order_and_once(messages: list[bytes], limit: int, turns: list[bool]) -> None:
    buffer = Buffer(10, 60)
    accepted, sent, count = [], b"", 0
    waiting = iter(messages)
    for arrives in turns:
        message = next(waiting, None) if arrives else None
        if message is not None:
            if buffer.add(message) is not DROPPED:
                accepted.append(message)
        else:
            buffer.advance()
            chunk = buffer.chunk(limit)
            if chunk is not None:
                assert len(chunk.data) <= limit or chunk.count == 1
                buffer.release(chunk)
                sent += chunk.data
                count += chunk.count
        assert buffer.size == len(b"".join(accepted)) - len(sent) <= 60
        assert b"".join(accepted).startswith(sent)
        assert len(buffer) == len(accepted) - count


# --- what is sent again ---


def chunk(text: str) -> Chunk:
    return Chunk(text.encode(), 1)


def send_again(window: ResendBuffer, now: float) -> str:
    """Send everything that has to be sent again."""
    sent = ""
    while (next_one := window.next) is not None:
        window.add(next_one, now)
        sent += next_one.data.decode()
    return sent


def test_chunks_are_resent_until_the_connection_was_alive_later() -> None:
    window = ResendBuffer(seconds=1.0, limit=100, times=4)
    window.add(chunk("a"), 10.0)
    window.add(chunk("b"), 10.5)
    assert window.due == 11.0
    window.confirm(10.9)
    assert window.due == 11.0
    window.confirm(11.0)
    assert window.due == 11.5
    window.recall()
    assert window.due is None
    assert send_again(window, 12.0) == "b"
    window.confirm(13.0)
    window.recall()
    assert window.next is None


def test_chunks_keep_their_order_if_a_resend_breaks_off() -> None:
    window = ResendBuffer(seconds=1.0, limit=100, times=4)
    for text in "abc":
        window.add(chunk(text), 10.0)
    window.recall()
    first = window.next
    assert first is not None
    window.add(first, 10.1)
    window.recall()
    assert send_again(window, 10.2) == "abc"


def test_a_chunk_is_resent_a_limited_number_of_times() -> None:
    window = ResendBuffer(seconds=1.0, limit=100, times=3)
    window.add(chunk("a"), 10.0)
    window.recall()
    assert send_again(window, 10.1) == "a"
    window.add(chunk("b"), 10.2)
    window.recall()
    assert send_again(window, 10.3) == "ab"
    window.recall()
    assert send_again(window, 10.4) == "b"
    window.recall()
    assert window.next is None


def test_the_oldest_leave_when_there_is_no_room() -> None:
    window = ResendBuffer(seconds=1.0, limit=5, times=4)
    for text in ("aa", "bb", "cc"):
        window.add(chunk(text), 10.0)
    window.recall()
    assert send_again(window, 10.1) == "bbcc"


def test_nothing_is_resent_if_that_is_switched_off() -> None:
    window = ResendBuffer(seconds=0, limit=100, times=4)
    window.add(chunk("a"), 10.0)
    window.recall()
    assert (window.next, window.due) == (None, None)
