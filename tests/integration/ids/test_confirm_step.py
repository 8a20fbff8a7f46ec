"""`manage.py confirm_id_step`, from the settings that changed to the first ID after it."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from resty_django.ids import next_id, service
from resty_django.ids.errors import StepChanged
from resty_django.ids.models import IdCounter, IdRule

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
        next_id(name, app, count=5)
    service.stop()
    settings.RESTY_DJANGO = {"IDS": {"STEP": 2, "OFFSET": 1}}


def run(*arguments: object, **options: Any) -> str:
    out = StringIO()
    call_command("confirm_id_step", *map(str, arguments), stdout=out, no_color=True, **options)
    return out.getvalue()


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
    out = run()
    assert "order/a: step 1; all that is reserved here lies below 5" in out
    assert "other/a" in out
    assert "--floor" in out
    assert steps() == before


def test_after_confirmation_ids_go_on_at_the_floor(counters: None) -> None:
    with pytest.raises(StepChanged, match="confirm_id_step"):
        next_id("order", "a")
    out = run("--floor", 100, "--yes")
    assert "All nodes of 3 names are at step 2 now." in out
    assert {step for _, _, step in steps()} == {2}
    service.stop()
    assert [next_id("order", "a") for _ in range(3)] == ["O000101", "O000103", "O000105"]
    assert next_id("other", "a") == "O000101"
    assert "nothing to confirm" in run("--floor", 100, "--yes")


def test_a_floor_below_what_is_reserved_sets_nothing_back(counters: None) -> None:
    run("--floor", 0, "--yes")
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
            run("--floor", 100)
    typing(monkeypatch, None)
    with pytest.raises(CommandError, match="--yes"):
        run("--floor", 100)
    assert steps() == before
    prompts = typing(monkeypatch, " 100 ")
    run("--floor", 100)
    assert prompts == ["Type the floor (100) to confirm: "]
    assert {step for _, _, step in steps()} == {2}


def test_all_or_nothing(counters: None) -> None:
    IdRule.objects.filter(name="other").update(max_counter=50)
    before = steps()
    with pytest.raises(CommandError, match=r"other/a: .*maximum of the rule is 50.*Nothing was changed"):
        run("--floor", 100, "--yes")
    assert steps() == before


def test_a_floor_below_zero_is_refused(counters: None) -> None:
    with pytest.raises(CommandError, match="at least 0"):
        run("--floor", -1, "--yes")
