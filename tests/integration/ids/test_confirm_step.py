"""`manage.py confirm_id_step`, from the settings that changed to the first ID after it."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from resty_django.ids import next_id, next_ids, service
from resty_django.ids.errors import StepChanged
from resty_django.ids.management.commands import confirm_id_step
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.operations import Refused, confirm_step

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    service.stop()
    yield
    service.stop()


@pytest.fixture
def counters(settings: Any) -> None:
    """Counters of two rules made with step 1, on a site that is set to step 2 now."""
    for name in ("order", "other"):
        IdRule(name=name, source="O{counter:06d}", max_counter=999_999, segment_size=10).save()
    for name, app in (("order", "a"), ("order", ""), ("other", "a")):
        next_ids(name, 5, app)
    service.stop()
    settings.RESTY_DJANGO = {"IDS": {"STEP": 2, "OFFSET": 1}}


def run(*arguments: object, **options: Any) -> str:
    output = StringIO()
    call_command("confirm_id_step", *map(str, arguments), stdout=output, no_color=True, **options)
    return output.getvalue()


def steps() -> list[tuple[str, str, int]]:
    rows = IdCounter.objects.order_by("rule__name", "app_name", "node_offset")
    return list(rows.values_list("rule__name", "app_name", "step"))


def typing(monkeypatch: Any, text: str | None) -> list[str]:
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        if text is None:
            raise EOFError
        return text

    monkeypatch.setattr("builtins.input", answer)
    return prompts


def test_without_a_floor_it_lists(counters: None) -> None:
    before = steps()
    output = run()
    assert "order/a: step 1; all numbers reserved here are below 5" in output
    assert "other/a" in output
    assert "--floor" in output
    assert steps() == before


def test_after_confirmation_ids_go_on_at_the_floor(counters: None) -> None:
    with pytest.raises(StepChanged, match="confirm_id_step"):
        next_id("order", "a")
    output = run("--floor", 100, "--yes", rule="order")
    assert "All nodes of 2 names now have step 2." in output
    assert {step for rule, _, step in steps() if rule == "order"} == {2}
    service.stop()
    assert [next_id("order", "a") for _ in range(3)] == ["O000101", "O000103", "O000105"]
    with pytest.raises(StepChanged):
        next_id("other", "a")
    assert "nothing to confirm" in run("--floor", 100, "--yes", rule="order")


def test_a_floor_applies_to_one_rule(counters: None) -> None:
    before = steps()
    with pytest.raises(CommandError, match="applies to one rule"):
        run("--floor", 100, "--yes")
    assert steps() == before


def test_a_floor_below_what_is_reserved_sets_nothing_back(counters: None) -> None:
    run("--floor", 0, "--yes", rule="order")
    service.stop()
    assert next_id("order", "a") == "O000005"


def test_only_what_was_named(counters: None) -> None:
    run("--floor", 100, "--yes", rule="order", app="")
    changed = {(rule, app) for rule, app, step in steps() if step == 2}
    assert changed == {("order", "")}
    run("--floor", 100, "--yes", rule="order")
    changed = {(rule, app) for rule, app, step in steps() if step == 2}
    assert changed == {("order", ""), ("order", "a")}
    assert "nothing to confirm" in run("--floor", 100, rule="nope")


def test_the_floor_is_typed_to_confirm(counters: None, monkeypatch: Any) -> None:
    before = steps()
    for text in ("", "yes", "10", "1000"):
        typing(monkeypatch, text)
        with pytest.raises(CommandError, match="not the floor"):
            run("--floor", 100, rule="order")
    typing(monkeypatch, None)
    with pytest.raises(CommandError, match="--yes"):
        run("--floor", 100, rule="order")
    assert steps() == before
    prompts = typing(monkeypatch, " 100 ")
    run("--floor", 100, rule="order")
    assert prompts == ["Type the floor (100) to confirm: "]
    assert {step for rule, _, step in steps() if rule == "order"} == {2}


def test_all_or_nothing(counters: None, monkeypatch: Any) -> None:
    confirmed: list[IdCounter] = []

    def fail_at_the_second(counter: IdCounter, *, floor: int) -> IdCounter:
        if confirmed:
            raise Refused("It cannot be.")
        confirmed.append(counter)
        return confirm_step(counter, floor=floor)

    monkeypatch.setattr(confirm_id_step, "confirm_step", fail_at_the_second)
    before = steps()
    with pytest.raises(CommandError, match=r"order/a: It cannot be. Nothing was changed"):
        run("--floor", 100, "--yes", rule="order")
    assert confirmed
    assert steps() == before


def test_a_floor_above_the_maximum_is_refused(counters: None) -> None:
    IdRule.objects.filter(name="other").update(max_counter=50)
    before = steps()
    with pytest.raises(CommandError, match=r"other/a: .*rule's maximum. Use at most 50.*Nothing was changed"):
        run("--floor", 100, "--yes", rule="other")
    assert steps() == before


def test_a_floor_below_zero_is_refused(counters: None) -> None:
    with pytest.raises(CommandError, match="at least 0"):
        run("--floor", -1, "--yes")
