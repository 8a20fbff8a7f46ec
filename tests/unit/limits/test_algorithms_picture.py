"""The picture of the algorithms is the one that the limiters of today draw."""

from __future__ import annotations

from tests.algorithms_picture import FILE, draw


def test_the_picture_shows_the_decisions_of_the_limiters() -> None:
    assert FILE.read_text() == draw(), "Draw it again: python -m tests.algorithms_picture"
