"""A fork after use: the child's numbers are its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resty_django.ids.models import IdCounter, IdRule

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("count", "how"), [(5, "hooks"), (180, "hooks"), (5, "none"), (180, "none")])
def test_children_of_a_fork_get_their_own_numbers(
    order: IdRule, worker: Callable[..., Any], count: int, how: str
) -> None:
    """As under gunicorn with --preload, and uWSGI: the parent has used the service, and goes on using it."""
    children = 3
    process = worker("fork", str(children), str(count), how)
    assert process.end(None) == ""
    by_process: dict[str, list[int]] = {}
    for line in process.lines:
        who, _, numbers = line.partition(" ")
        assert who != "error", numbers
        by_process.setdefault(who, []).append(int(numbers))
    assert {who: len(numbers) for who, numbers in by_process.items()} == {
        "parent": 3 * count,
        **{f"child{n}": 2 * count for n in range(children)},
    }
    every = [number for numbers in by_process.values() for number in numbers]
    assert len(set(every)) == len(every)
    for numbers in by_process.values():
        assert numbers == sorted(numbers)
    assert IdCounter.objects.get().bound > max(every)
