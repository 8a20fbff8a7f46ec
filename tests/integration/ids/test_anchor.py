"""Two sites with STEP 2 and a database each never issue the same number, however each has created its rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import F

from resty_django.ids import next_ids, service
from resty_django.ids.models import AnchorField, IdRule

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MINIMUM = 1
FIELDS: Mapping[str, Any] = {
    "name": "order",
    "source": "{counter}",
    "min_counter": MINIMUM,
    "max_counter": 9_999,
    "segment_size": 3,
}


def historical() -> Any:
    """The model as a data migration sees it."""
    loader = MigrationExecutor(connection).loader
    return loader.project_state(("resty_ids", "0001_initial")).apps.get_model("resty_ids", "IdRule")


def by_fixture(tmp_path: Any) -> None:
    fixture = tmp_path / "rules.json"
    fixture.write_text(json.dumps([{"model": "resty_ids.idrule", "fields": {**FIELDS, **stamped()}}]))
    call_command("loaddata", str(fixture), verbosity=0)


def stamped() -> dict[str, str]:
    return {"created_at": "2026-11-21T12:00:00Z", "updated_at": "2026-11-21T12:00:00Z"}


def by_sql(tmp_path: Any) -> None:
    row: dict[str, Any] = {
        field.attname: field.get_default()
        for field in IdRule._meta.concrete_fields
        if not isinstance(field, AnchorField) and not field.primary_key
    }
    row = {**row, **FIELDS, "created_at": "2026-11-21 12:00:00", "updated_at": "2026-11-21 12:00:00"}
    columns = ", ".join(connection.ops.quote_name(name) for name in row)
    with connection.cursor() as cursor:
        values = ", ".join(["%s"] * len(row))
        cursor.execute(f"INSERT INTO resty_ids_idrule ({columns}) VALUES ({values})", list(row.values()))


def by_update_conflicts(tmp_path: Any) -> None:
    rules = IdRule.objects.bulk_create([IdRule(**FIELDS)], ignore_conflicts=True)
    assert rules


WAYS: Mapping[str, Callable[[Any], Any]] = {
    "save": lambda tmp_path: IdRule(**FIELDS).save(),
    "save with another anchor": lambda tmp_path: IdRule(**FIELDS, anchor=0).save(),
    "create": lambda tmp_path: IdRule.objects.create(**FIELDS),
    "update_or_create": lambda tmp_path: IdRule.objects.update_or_create(name="order", defaults=dict(FIELDS)),
    "bulk_create": lambda tmp_path: IdRule.objects.bulk_create([IdRule(**FIELDS)]),
    "bulk_create without conflicts": by_update_conflicts,
    "data migration": lambda tmp_path: historical().objects.create(**FIELDS),
    "data migration in bulk": lambda tmp_path: historical().objects.bulk_create([historical()(**FIELDS)]),
    "fixture": by_fixture,
    "raw SQL": by_sql,
}


def save_edit(minimum: int) -> None:
    rule = IdRule.objects.get()
    rule.min_counter = minimum
    rule.save()


def stale_save_edit(minimum: int) -> None:
    rule = IdRule.objects.defer("anchor").get()
    rule.anchor = 0
    rule.min_counter = minimum
    rule.save()


def historical_edit(minimum: int) -> None:
    rule = historical().objects.get()
    rule.min_counter = minimum
    rule.save()


def queryset_edit(minimum: int) -> None:
    IdRule.objects.update(min_counter=minimum, version=F("version") + 1)


EDITS: Mapping[str, Callable[[int], None]] = {
    "save": save_edit,
    "save of a stale copy": stale_save_edit,
    "data migration": historical_edit,
    "queryset": queryset_edit,
}


def numbers(settings: Any, tmp_path: Any, creation: str, offset: int, edit: tuple[str, int, bool] | None) -> set[int]:
    """Return the numbers that a separate site issues whose rule was created this way."""
    service.stop()
    IdRule.objects.all().delete()
    settings.RESTY_DJANGO = {"IDS": {"STEP": 2, "OFFSET": offset}}
    WAYS[creation](tmp_path)
    issued: set[int] = set()
    if edit is not None:
        name, minimum, after_use = edit
        if after_use:
            issued.update(map(int, next_ids("order", 4)))
        EDITS[name](minimum)
        service.stop()
    issued.update(map(int, next_ids("order", 8)))
    service.stop()
    return issued


@pytest.mark.parametrize("creation", WAYS)
def test_sites_share_nothing_however_their_rules_were_made(settings: Any, tmp_path: Any, creation: str) -> None:
    others = numbers(settings, tmp_path, "save", 1, None)
    assert numbers(settings, tmp_path, creation, 0, None) == set(range(1, 16, 2))
    assert others == set(range(2, 17, 2))


CASES = [
    *((way, edit, True) for way in ("bulk_create", "data migration in bulk", "fixture") for edit in EDITS),
    *((way, edit, False) for way in ("bulk_create", "data migration in bulk") for edit in EDITS),
    ("fixture", "save", False),
    ("raw SQL", "save of a stale copy", False),
]
"""A row without an anchor that is edited past our code before anything of ours has seen it is not among them."""


@pytest.mark.parametrize(("creation", "edit", "after_use"), CASES)
def test_an_edit_of_the_minimum_moves_no_anchor(
    settings: Any, tmp_path: Any, creation: str, edit: str, after_use: bool
) -> None:
    others = numbers(settings, tmp_path, "save", 1, ("save", 10, True))
    assert not others & numbers(settings, tmp_path, creation, 0, (edit, 10, after_use))
