"""Wording: docs, messages, labels and comments avoid the constructions that tests/english.py lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import english


@pytest.mark.parametrize(
    "text",
    [
        "An ID is no secret.",
        "It is kept for ever.",
        "Files stand beside\nit.",
        "The header tells the time.",
        "A thread of its own.",
        "Keys and those of other caches.",
        "It asks so often.",
        "Nothing can be had.",
        "# What there is",
        "What the worker does.",
        "It answers. Who asks more often gets a 429.",
        "Whoever calls it.",
        "Gives the record.",
    ],
)
def test_construction_is_found(text: str) -> None:
    assert list(english.check(text))


@pytest.mark.parametrize(
    "text",
    [
        "There is no queue.",
        "It is no longer used.",
        "Call `tells()` or `beside`.",
        "What can I do?",
        "It gives up after a minute.",
        "Return the record.",
    ],
)
def test_plain_wording_is_left_alone(text: str) -> None:
    assert not list(english.check(text))


def test_code_of_a_page_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```python\n# tells\n```\n\nIt tells.\n")
    assert [finding.line for finding in english.findings(page)] == [7]


def test_strings_and_comments_of_python_are_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('x = f"The cache {1} tells nothing."\ny = "tells"\n# It is kept for ever.\n')
    assert sorted(finding.line for finding in english.findings(module)) == [1, 3]


@pytest.mark.parametrize("path", english.PATHS)
def test_text_of_the_project_has_none(path: str) -> None:
    assert english.main(path) == 0
