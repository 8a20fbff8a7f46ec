"""Making txids: their time, their random bits, threads, forks.

Private names: random bytes that serve twice, or that a child shares with its parent, show in the store of tails alone;
in the txids they would show as duplicates that no test can wait for.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from resty_django.txid import generator, is_txid, parse, txid
from resty_django.txid.codec import encode
from tests.threads import together

FULL = range(9, 19)
"""Where the characters are that are random alone."""


def test_an_id_has_the_time_of_its_making() -> None:
    for _ in range(2000):
        before = time.time_ns() // 1_000_000
        new_id = txid()
        after = time.time_ns() // 1_000_000
        assert is_txid(new_id)
        assert before <= parse(new_id).ms <= after


def test_every_call_returns_another_id() -> None:
    ids = [txid() for _ in range(100_000)]
    assert len(set(ids)) == len(ids)
    times = [parse(new_id).ms for new_id in ids]
    assert len(set(times)) > 3


@pytest.mark.parametrize("ms", [*range(8), 1700000000123, 2**42 - 1, 2**42 + 5, -1, -1_000_000])
def test_an_id_contains_the_time_of_the_argument(ms: int) -> None:
    ids = [txid(ms) for _ in range(1000)]
    assert {parse(new_id).ms for new_id in ids} == {ms % 2**42}
    assert len(set(ids)) == 1000


def test_a_clock_that_is_set_back_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for now in (5_000_000, 5_999_999, 6_000_000, 4_999_999):
        monkeypatch.setattr(generator, "time_ns", lambda now=now: now)
        assert parse(txid()).ms == now // 1_000_000


def test_tails_are_used_once() -> None:
    """Also by a view that was taken before others used the same pool."""
    tails = [txid(0)[8:] for _ in range(3 * generator.TAILS_PER_BLOCK)]
    assert len(set(tails)) == len(tails)


def test_no_random_byte_serves_twice() -> None:
    assert len(set(generator._tails(0)) & set(generator._tails(0))) == 0


def test_threads_get_different_ids() -> None:
    count, threads = 20_000, 6
    batches: list[list[str]] = [[] for _ in range(threads)]
    begin = threading.Barrier(threads)

    def work(into: list[str]) -> None:
        begin.wait()
        into.extend(txid(0) if number & 1 else txid() for number in range(count))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        together(*[partial(work, into) for into in batches])
    finally:
        sys.setswitchinterval(interval)
    ids = [new_id for into in batches for new_id in into]
    assert len(ids) == count * threads
    assert len(set(ids)) == len(ids)
    assert len({new_id[9:] for new_id in ids}) == len(ids)


# --- the random bits ---------------------------------------------------------------------------------------------


def faults(ids: Sequence[str]) -> list[str]:
    """Return the deviations from randomness. By chance, one is found once in 10^9 runs.

    Each bit is compared with a fair coin, each pair of bits with two fair coins, each random character with a fair die
    of 32 faces (chi-square with 31 degrees of freedom: above 125 with a probability below 10^-12), and each bit with
    the same bit of the id before.
    """
    numbers = [parse(new_id).random for new_id in ids]
    size = len(numbers)
    columns = [int("".join(str(number >> bit & 1) for number in numbers), 2) for bit in range(54)]
    messages = []

    def coin(name: str, ones: int, tosses: int) -> None:
        deviation = (ones - tosses / 2) / math.sqrt(tosses / 4)
        if abs(deviation) > 7.5:  # a probability of 6.4e-14, and there are about 1600 of them
            messages.append(f"{name}: {deviation:.1f} sigma")

    for bit, column in enumerate(columns):
        coin(f"bit {bit}", column.bit_count(), size)
        coin(f"bit {bit} and the id before", (column ^ column >> 1).bit_count() - (column >> size - 1), size - 1)
    for (first, column), (second, second_column) in itertools.combinations(enumerate(columns), 2):
        coin(f"bits {first} and {second}", (column ^ second_column).bit_count(), size)
    for at in FULL:
        counts = Counter(new_id[at] for new_id in ids)
        expected = size / 32
        chi = sum((counts[face] - expected) ** 2 / expected for face in generator.ALPHABET)
        if chi > 125:
            messages.append(f"character {at}: chi-square {chi:.0f}")
    return messages


def test_the_random_bits_are_fair_coins() -> None:
    assert faults([txid(1700000000000 + number % 4) for number in range(40_000)]) == []
    assert faults([txid() for _ in range(40_000)]) == []


def test_the_statistics_find_what_is_not_random() -> None:
    good = [parse(txid(0)).random for _ in range(20_000)]
    stuck = [encode(0, random | 1 << 17) for random in good]
    tied = [encode(0, random & ~(1 << 3) | (random >> 40 & 1) << 3) for random in good]
    skewed = [encode(0, random if number % 8 else random | 31 << 26) for number, random in enumerate(good)]
    counted = [encode(0, random & ~3 | number & 3) for number, random in enumerate(good)]
    assert "bit 17" in faults(stuck)[0]
    assert any("bits 3 and 40" in message for message in faults(tied))
    assert any("chi-square" in message for message in faults(skewed))
    assert any("the id before" in message for message in faults(counted))


# --- forks -------------------------------------------------------------------------------------------------------


def test_a_child_discards_its_parents_tails() -> None:
    """Run the code of a forked child, also for a call that the fork interrupted while it used the parent's iterator."""
    txid()
    ids = generator._view[2]
    pools = list(generator._pools)
    txid(0)
    generator._after_fork()
    assert list(ids) == []
    assert [list(pool) for pool in pools] == [[], [], [], []]
    assert generator._view[1] == 0
    assert is_txid(txid())
