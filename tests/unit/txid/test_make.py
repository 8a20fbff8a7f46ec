"""Making txids: their time, their random bits, threads, forks."""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from resty_django.txid import is_txid, make, parse, txid
from resty_django.txid.codec import encode

FULL = range(9, 19)
"""Where the characters are that are random alone."""


def test_an_id_has_the_time_of_its_making() -> None:
    for _ in range(2000):
        before = time.time_ns() // 1_000_000
        made = txid()
        after = time.time_ns() // 1_000_000
        assert is_txid(made)
        assert before <= parse(made).ms <= after


def test_every_call_gives_another_id() -> None:
    made = [txid() for _ in range(100_000)]
    assert len(set(made)) == len(made)
    times = [parse(each).ms for each in made]
    assert len(set(times)) > 3


@pytest.mark.parametrize("ms", [*range(8), 1700000000123, 2**42 - 1, 2**42 + 5, -1, -1_000_000])
def test_a_given_time_is_the_time_inside(ms: int) -> None:
    made = [txid(ms) for _ in range(1000)]
    assert {parse(each).ms for each in made} == {ms % 2**42}
    assert len(set(made)) == 1000


def test_a_clock_that_is_set_back_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for now in (5_000_000, 5_999_999, 6_000_000, 4_999_999):
        monkeypatch.setattr(make, "time_ns", lambda now=now: now)
        assert parse(txid()).ms == now // 1_000_000


def test_tails_are_used_once() -> None:
    """Also by a view that was taken before others used the same pool."""
    made = [txid(0)[8:] for _ in range(3 * make.BLOCK)]
    assert len(set(made)) == len(made)


def test_no_random_byte_serves_twice() -> None:
    assert len(set(make._tails(0)) & set(make._tails(0))) == 0


def test_threads_get_ids_of_their_own() -> None:
    each, threads = 20_000, 6
    found: list[list[str]] = [[] for _ in range(threads)]
    begin = threading.Barrier(threads)

    def work(into: list[str]) -> None:
        begin.wait()
        into.extend(txid(0) if number & 1 else txid() for number in range(each))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        running = [threading.Thread(target=work, args=(into,)) for into in found]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    made = [one for into in found for one in into]
    assert len(made) == each * threads
    assert len(set(made)) == len(made)
    assert len({one[9:] for one in made}) == len(made)


# --- the random bits ---------------------------------------------------------------------------------------------


def faults(ids: Sequence[str]) -> list[str]:
    """What is not as random as it should be. All bounds together are passed by chance once in 10^9 times.

    Each bit is compared with a fair coin, each pair of bits with two fair coins, each random character with a fair die
    of 32 faces (chi-square with 31 degrees of freedom: above 125 with a probability below 10^-12), and each bit with
    the same bit of the id before.
    """
    numbers = [parse(each).random for each in ids]
    size = len(numbers)
    columns = [int("".join(str(number >> bit & 1) for number in numbers), 2) for bit in range(54)]
    found = []

    def coin(name: str, ones: int, tosses: int) -> None:
        deviation = (ones - tosses / 2) / math.sqrt(tosses / 4)
        if abs(deviation) > 7.5:  # a probability of 6.4e-14, and there are about 1600 of them
            found.append(f"{name}: {deviation:.1f} sigma")

    for bit, column in enumerate(columns):
        coin(f"bit {bit}", column.bit_count(), size)
        coin(f"bit {bit} and the id before", (column ^ column >> 1).bit_count() - (column >> size - 1), size - 1)
    for (one, column), (two, other) in itertools.combinations(enumerate(columns), 2):
        coin(f"bits {one} and {two}", (column ^ other).bit_count(), size)
    for at in FULL:
        counts = Counter(each[at] for each in ids)
        expected = size / 32
        chi = sum((counts[face] - expected) ** 2 / expected for face in make.ALPHABET)
        if chi > 125:
            found.append(f"character {at}: chi-square {chi:.0f}")
    return found


def test_the_random_bits_pass_for_fair_coins() -> None:
    assert faults([txid(1700000000000 + number % 4) for number in range(40_000)]) == []
    assert faults([txid() for _ in range(40_000)]) == []


def test_the_statistics_find_what_is_not_random() -> None:
    good = [parse(txid(0)).random for _ in range(20_000)]
    stuck = [encode(0, random | 1 << 17) for random in good]
    tied = [encode(0, random & ~(1 << 3) | (random >> 40 & 1) << 3) for random in good]
    skewed = [encode(0, random if number % 8 else random | 31 << 26) for number, random in enumerate(good)]
    counted = [encode(0, random & ~3 | number & 3) for number, random in enumerate(good)]
    assert "bit 17" in faults(stuck)[0]
    assert any("bits 3 and 40" in each for each in faults(tied))
    assert any("chi-square" in each for each in faults(skewed))
    assert any("the id before" in each for each in faults(counted))


# --- forks -------------------------------------------------------------------------------------------------------


def test_a_child_has_nothing_left_of_its_parents_store() -> None:
    """What runs in a child after a fork, also for a call that the fork interrupted with the view in its hands."""
    txid()
    ids = make._view[2]
    pools = list(make._pools)
    txid(0)
    make._forget()
    assert list(ids) == []
    assert [list(pool) for pool in pools] == [[], [], [], []]
    assert make._view[1] == 0
    assert is_txid(txid())
