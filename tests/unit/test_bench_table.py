"""The table of `make bench`: ratios of each round, targets, peers that are missing."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def table() -> Any:
    before = list(sys.path)
    sys.path.insert(0, str(BENCH))
    try:
        return import_module("_table")
    finally:
        sys.path[:] = before


def test_the_ratio_is_computed_per_round(table: Any) -> None:
    """A round on a busy machine takes twice as long for both, which the ratio does not show."""
    (row,) = table.compare({"ours": [10, 20, 30], "peer": [5, 10, 10]}, (("ours", "peer"),))

    assert (row.subject, row.reference, row.ratio, row.low, row.high) == (20, 10, 2, 2, 3)


@pytest.mark.parametrize(
    ("target", "verdict"),
    [("<= 2", "reached"), ("<= 1.9", "MISSED"), (">= 2", "reached"), (">= 2.1", "MISSED")],
)
def test_a_target_is_reached_by_the_median(table: Any, target: str, verdict: str) -> None:
    row = table.row("ours / peer", [1, 2, 9], [1, 1, 1], "us", target)

    assert row.verdict() == f"{target}: {verdict}"


def test_a_figure_without_a_peer_has_its_own_target(table: Any) -> None:
    row = table.row("ours", [4, 3, 5], None, "us", "<= 3")

    assert row.cells() == ["ours", "4 us", "", "3 to 5", "<= 3: MISSED"]


def test_a_peer_that_is_missing_has_no_row(table: Any) -> None:
    assert not list(table.compare({"ours": [1.0]}, (("ours", "peer"),)))


def test_the_table_has_a_line_for_each_row(table: Any) -> None:
    rows = table.compare({"ours": [0.25], "peer": [1234.5]}, (("ours", "peer"), ("peer", "ours")))

    lines = table.markdown(rows).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[2].split("|")[1:4]] == ["ours / peer", "0.25 us / 1,234 us", "0.0002"]


def test_the_best_turn_is_the_figure_of_a_round(table: Any) -> None:
    """Two of three turns are disturbed."""
    turns = iter(range(10**6))

    def run(count: int) -> float:
        return count * (3e-6 if next(turns) % 3 else 1e-6)

    samples = table.measure({"ours": run}, table.Options(rounds=3, seconds=0.01))

    assert samples["ours"] == pytest.approx([1.0, 1.0, 1.0])


def test_rows_of_the_readme_belong_to_scripts(table: Any) -> None:
    for _, name in table.README:
        script, row = name.split(": ", 1)
        words = re.findall(r"[\w@.-]+", row)
        source = (BENCH / f"{script}.py").read_text()

        assert [word for word in words if word not in source] == []
