"""The strictly monotonic variant."""

from __future__ import annotations

import threading
import time

from resty_django.txid import MonotonicTxid, is_txid, monotonic, parse
from resty_django.txid.codec import from_number

MS = 1_000_000


class Clock:
    def __init__(self, *times: int) -> None:
        self.times = list(times)

    def __call__(self) -> int:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def test_ids_rise_within_a_millisecond_by_one() -> None:
    following = MonotonicTxid(Clock(7 * MS, 7 * MS + 1, 8 * MS - 1))
    made = [parse(following()) for _ in range(3)]
    assert [each.ms for each in made] == [7, 7, 7]
    assert [each.number - made[0].number for each in made] == [0, 1, 2]


def test_ids_rise_while_the_clock_falls() -> None:
    following = MonotonicTxid(Clock(7 * MS, 3 * MS, 1 * MS, 7 * MS, 9 * MS))
    made = [following() for _ in range(5)]
    assert made == sorted(set(made))
    assert [parse(each).ms for each in made] == [7, 7, 7, 7, 9]


def test_each_millisecond_has_random_bits_of_its_own() -> None:
    following = MonotonicTxid(Clock(*(ms * MS for ms in range(1, 1001))))
    made = [parse(following()) for _ in range(1000)]
    assert [each.ms for each in made] == list(range(1, 1001))
    assert len({each.random >> 20 for each in made}) > 990


def test_used_up_random_bits_go_on_in_the_next_millisecond() -> None:
    following = MonotonicTxid(Clock(7 * MS))
    following()
    following._last = 7 << 54 | 2**54 - 1
    assert following() == from_number(8 << 54)


def test_threads_share_one_order() -> None:
    following, found = MonotonicTxid(), []
    lock = threading.Lock()

    def work() -> None:
        mine = [following() for _ in range(5000)]
        assert mine == sorted(mine)
        with lock:
            found.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 20_000
    assert all(is_txid(each) for each in found)
    assert abs(parse(following()).ms - time.time() * 1000) < 60_000


def test_a_child_goes_on_above_its_parent_with_bits_of_its_own() -> None:
    """What runs in a child after a fork; the lock may be held by a thread that the child does not have."""
    following = MonotonicTxid(Clock(7 * MS))
    last = parse(following())
    following._lock.acquire()
    monotonic._after_fork()
    first, second = parse(following()), parse(following())
    assert first.ms == last.ms + 1
    assert second.number == first.number + 1
    assert first.random - last.random > 1 or first.random < last.random
