"""Operations of the admin on several objects: errors, and stores that are down."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import translation
from django.utils.translation import gettext

from resty_django.admin.operations import Operation, OperationResult, Refused
from resty_django.redis.errors import StoreDown
from resty_django.shdict.errors import NotFound, Unavailable


def outcome_of(error: Exception) -> tuple[list[str], list[str]]:
    """Change three objects, the second of which raises `error`; return the names of the changed ones, and errors."""

    def run(target: int, data: dict[str, Any]) -> OperationResult:
        if target == 2:
            raise error
        return OperationResult("Changed.")

    operation: Operation[int] = Operation("change", "Change", "change", run)
    outcome = operation.change({"a": 1, "b": 2, "c": 3}, {}, Refused, NotFound, StoreDown)
    return [*outcome.changes], outcome.errors


@pytest.mark.parametrize("error", [Refused("no"), NotFound("no")])
def test_an_object_that_refuses_does_not_stop_the_others(error: Exception) -> None:
    assert outcome_of(error) == (["a", "c"], ["b: no"])


@pytest.mark.parametrize("error", [StoreDown("down"), Unavailable("down")])
def test_a_store_that_is_down_ends_the_operation(error: Exception) -> None:
    assert outcome_of(error) == (["a"], ["down"])


def test_the_history_is_in_english_and_the_message_in_the_language_of_the_user() -> None:
    with translation.override("de"):
        result = OperationResult.of(lambda: gettext("Discarded."), gone=True)
    assert result == OperationResult("Discarded.", "Verworfen.", gone=True)


def test_other_errors_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        outcome_of(ZeroDivisionError())
