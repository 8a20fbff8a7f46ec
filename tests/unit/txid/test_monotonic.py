"""The strictly monotonic variant.

Private attributes: 54 bits are not used up in the time of a test, so `_last` is set; and in a child, the lock may be
held by a thread that does not exist there, so `_lock` is taken before the hook for forks runs.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from resty_django.txid import MonotonicTxid, is_txid, monotonic, parse
from resty_django.txid.codec import from_number
from tests.threads import together

MS = 1_000_000


def clock_of(*times: int) -> Callable[[], int]:
    """Return a clock that shows these times one after the other, and then the last one."""
    return itertools.chain(times, itertools.repeat(times[-1])).__next__


def test_ids_rise_within_a_millisecond_by_one() -> None:
    following = MonotonicTxid(clock_of(7 * MS, 7 * MS + 1, 8 * MS - 1))
    ids = [parse(following()) for _ in range(3)]
    assert [parsed.ms for parsed in ids] == [7, 7, 7]
    assert [parsed.number - ids[0].number for parsed in ids] == [0, 1, 2]


def test_ids_rise_while_the_clock_falls() -> None:
    following = MonotonicTxid(clock_of(7 * MS, 3 * MS, 1 * MS, 7 * MS, 9 * MS))
    ids = [following() for _ in range(5)]
    assert ids == sorted(set(ids))
    assert [parse(new_id).ms for new_id in ids] == [7, 7, 7, 7, 9]


def test_each_millisecond_has_its_own_random_bits() -> None:
    following = MonotonicTxid(clock_of(*(ms * MS for ms in range(1, 1001))))
    ids = [parse(following()) for _ in range(1000)]
    assert [parsed.ms for parsed in ids] == list(range(1, 1001))
    assert len({parsed.random >> 20 for parsed in ids}) > 990


def test_used_up_random_bits_continue_in_the_next_millisecond() -> None:
    following = MonotonicTxid(clock_of(7 * MS))
    following()
    following._last = 7 << 54 | 2**54 - 1
    assert following() == from_number(8 << 54)


def test_threads_share_one_order() -> None:
    following, ids = MonotonicTxid(), []
    lock = threading.Lock()

    def work() -> None:
        own_ids = [following() for _ in range(5000)]
        assert own_ids == sorted(own_ids)
        with lock:
            ids.extend(own_ids)

    together(*[work for _ in range(4)])
    assert len(set(ids)) == 20_000
    assert all(is_txid(new_id) for new_id in ids)
    assert abs(parse(following()).ms - time.time() * 1000) < 60_000


def test_a_child_continues_above_its_parent_with_its_own_bits() -> None:
    """Run the code of a forked child; the lock may be held by a thread that the child does not have."""
    following = MonotonicTxid(clock_of(7 * MS))
    last = parse(following())
    following._lock.acquire()
    monotonic._after_fork()
    first, second = parse(following()), parse(following())
    assert first.ms == last.ms + 1
    assert second.number == first.number + 1
    assert first.random - last.random > 1 or first.random < last.random
