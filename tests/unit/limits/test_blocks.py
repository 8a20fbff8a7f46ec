"""Blocks of quotas: what a row counts and what passes, in any order of uses, refills, refunds and losses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from resty_django.limits import ForeignData
from resty_django.limits.quotas import blocks
from resty_django.limits.quotas.blocks import Block, RowCounts, block_size


@given(limit=st.integers(0, 10**12), left=st.integers(1, 10**12), most=st.integers(1, 10**6))
def test_blocks_adapt_to_the_limit_and_shrink_near_it(limit: int, left: int, most: int) -> None:
    size = block_size(limit, left, most)
    assert 1 <= size <= max(1, min(most, limit // 100, left // 10))


def test_block_sizes() -> None:
    assert block_size(50, 50, 100) == 1
    assert block_size(1000, 1000, 100) == 10
    assert block_size(1_000_000, 1_000_000, 100) == 100
    assert [block_size(1000, left, 100) for left in (100, 50, 19, 9, 1)] == [10, 5, 1, 1, 1]


@given(st.builds(Block, *[st.integers(0, 2**62)] * 9))
def test_a_block_is_stored_unchanged(block: Block) -> None:
    assert blocks.unpack(blocks.pack(block)) == block


@pytest.mark.parametrize("state", [b"", b"x" * 60, "text", 7, blocks.pack(Block())[:-1]])
def test_other_data_is_refused(state: object) -> None:
    with pytest.raises(ForeignData, match="holds no block"):
        blocks.unpack(state)


class Machine(RuleBasedStateMachine):
    """A row with its conditional UPDATE, a block, and processes that may be killed or delayed between the two."""

    @initialize(limit=st.integers(0, 400), most=st.integers(1, 20))
    def begin(self, limit: int, most: int) -> None:
        self.limit, self.most = limit, most
        self.row = self.passed = self.lost = 0
        self.losses = self.resets = self.granted = 0
        self.now = 1_000_000
        self.block = Block()

    def take_units(self, cost: int, killed: bool) -> bool:
        taken = blocks.take(self.block, self.now, cost, self.limit)
        assert not taken.check or self.now >= self.block.checked_until
        self.block = taken.block
        if taken.allowed is not None:
            self.passed += cost if taken.allowed else 0
            return taken.allowed
        total = self.limit + self.granted
        need, left = cost - taken.held, total - self.row
        size = max(need, block_size(self.limit, left, self.most)) if taken.refill and left > need else need
        for units in (min(size, left), need):
            if units >= need and self.row + units <= total:
                self.row += units
                if killed:
                    self.lost += units + taken.held
                    self.losses += 1
                    return False
                rest = units + taken.held - cost
                self.block = blocks.deposit(self.block, rest, self._counts(), taken.refill)
                self.passed += cost
                return True
        self.block = blocks.refuse(self.block, self.now, cost, self.limit, taken, self._counts())
        return False

    def _counts(self) -> RowCounts:
        return RowCounts(self.row, self.granted, self.resets)

    @rule(cost=st.integers(1, 5))
    def use(self, cost: int) -> None:
        left = self.limit + self.granted - self.passed - self.lost
        refused_before = self.now < self.block.refused_until
        assert self.take_units(cost, False) == (cost <= left) or refused_before

    @rule(cost=st.integers(1, 5))
    def kill(self, cost: int) -> None:
        self.take_units(cost, True)

    @rule()
    def lose_the_store(self) -> None:
        self.lost += self.block.available
        self.losses += 1
        self.block = Block()

    @rule(units=st.integers(-20, 20))
    def grant(self, units: int) -> None:
        self.granted += units
        self.block = blocks.sync(self.block, self._counts())
        assert self.block.refused_until == 0 or not units

    @rule(cost=st.integers(1, 5), late=st.booleans())
    def reset(self, cost: int, late: bool) -> None:
        """Reset the row, in the midst of the use of another process if `late`."""
        taken = blocks.take(self.block, self.now, cost, self.limit)
        late = late and taken.allowed is None
        before, resets = self.row, self.resets
        if late:
            self.block = taken.block
        self.row, self.resets = 0, self.resets + 1
        self.passed = self.lost = 0
        self.block = blocks.sync(self.block, self._counts())
        assert self.block.available == 0
        if late:
            self.block = blocks.deposit(self.block, 7, RowCounts(before + cost + 7, 0, resets), taken.refill)
            assert (self.block.available, self.block.used, self.block.granted) == (0, 0, self.granted)

    @rule(milliseconds=st.integers(1, 20_000))
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @invariant()
    def nothing_is_counted_too_little(self) -> None:
        if hasattr(self, "row"):
            assert self.passed + self.block.available + self.lost == self.row

    @invariant()
    def a_loss_costs_at_most_one_block(self) -> None:
        if hasattr(self, "row"):
            assert self.lost <= self.losses * max(self.most, 5)


TestMachine = Machine.TestCase


def test_a_block_in_use_is_compared_with_its_row_once_a_minute() -> None:
    block = blocks.deposit(Block(), 100, RowCounts(100), True)
    assert blocks.take(block, 7, 1, 1000).check
    block = blocks.take(block, 7, 1, 1000).block
    for now, check in (
        (8, False),
        (blocks.CHECK_MS + 6, False),
        (blocks.CHECK_MS + 7, True),
        (blocks.CHECK_MS + 8, False),
    ):
        taken = blocks.take(block, now, 1, 1000)
        assert (taken.allowed, taken.check) == (True, check)
        block = taken.block
    assert block.available == 95


def test_units_that_were_reserved_before_a_reset_are_dropped() -> None:
    block = blocks.deposit(Block(), 10, RowCounts(11, 3), True)
    after = blocks.sync(block, RowCounts(0, 3, 1))
    assert (after.available, after.used, after.granted, after.resets) == (0, 0, 3, 1)
    assert blocks.sync(after, RowCounts(11)) == after
    assert blocks.deposit(after, 10, RowCounts(21), True) == after
    other = blocks.deposit(block, 5, RowCounts(6, 0, 1), True)
    assert (other.available, other.used, other.resets) == (5, 6, 1)
    assert blocks.reserved(other, 1) == 5
    assert blocks.reserved(other, 0) == 0


def test_all_units_pass_one_at_a_time() -> None:
    machine = Machine()
    machine.begin(1000, 100)
    assert [machine.take_units(1, False) for _ in range(1010)] == [True] * 1000 + [False] * 10
    assert machine.row == 1000


def test_mixed_costs_use_the_limit_up() -> None:
    machine = Machine()
    machine.begin(100, 100)
    assert [machine.take_units(30, False) for _ in range(4)] == [True, True, True, False]
    assert [machine.take_units(7, False) for _ in range(2)] == [True, False]
    assert [machine.take_units(1, False) for _ in range(4)] == [True, True, True, False]
