"""Txids in the database: order, collation, lookups by time, checks of values, forms."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django import forms
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import connection, models
from django.db.migrations.writer import MigrationWriter
from django.test.utils import isolate_apps
from django.utils import timezone
from rest_framework.serializers import ModelSerializer

from resty_django.txid import bound, current, is_txid, parse, txid, txid_max, txid_min
from resty_django.txid.codec import encode
from resty_django.txid.fields import TxidField
from resty_django.txid.forms import TxidField as TxidFormField

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def model() -> Iterator[Any]:
    """A table whose primary key is a txid, and one more, indexed."""
    with isolate_apps("project.shop"):

        class Line(models.Model):  # noqa: DJ008
            id = TxidField(primary_key=True, default=txid)
            request = TxidField(null=True, blank=True, db_index=True)
            text = models.CharField(max_length=20)

            class Meta:
                app_label = "shop"
                db_table = "test_txid_line"

        class Part(models.Model):  # noqa: DJ008
            line = models.ForeignKey(Line, models.CASCADE)

            class Meta:
                app_label = "shop"
                db_table = "test_txid_part"

        Line.Part = Part  # type: ignore[attr-defined]
        with connection.schema_editor() as editor:
            editor.create_model(Line)
            editor.create_model(Part)
        try:
            yield Line
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(Part)
                editor.delete_model(Line)


def ids(query: Any) -> list[str]:
    return list(query.order_by("pk").values_list("pk", flat=True))


def test_a_new_row_has_a_new_txid_as_its_key(model: Any) -> None:
    first, second = model.objects.create(text="a"), model.objects.create(text="b")
    assert is_txid(first.pk)
    assert first.pk != second.pk
    assert model.objects.get(pk=first.pk).text == "a"
    model.Part.objects.create(line=second)
    assert model.Part.objects.get(line__pk__txid_range=(parse(second.pk).ms, parse(second.pk).ms)).line.text == "b"


def test_the_database_orders_as_python_does(model: Any) -> None:
    """Letters after digits, and no two letters alike."""
    stored_ids = [encode(ms * 7919**3, ms * 104729**2 % 2**54) for ms in range(300)]
    model.objects.bulk_create(model(id=txid) for txid in stored_ids)
    assert ids(model.objects.all()) == sorted(stored_ids)
    middle = sorted(stored_ids)[150]
    assert ids(model.objects.filter(pk__gt=middle)) == sorted(stored_ids)[151:]


def test_the_column_has_a_collation_of_bytes(model: Any) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute(
                "SELECT column_name, collation_name, character_maximum_length FROM information_schema.columns "
                "WHERE table_schema = DATABASE() AND table_name IN ('test_txid_line', 'test_txid_part') "
                "AND column_name IN ('id', 'request', 'line_id') AND data_type = 'varchar'"
            )
            columns = {name: (collation, length) for name, collation, length in cursor.fetchall()}
            assert columns == dict.fromkeys(("id", "request", "line_id"), ("utf8mb4_bin", 20))
        elif connection.vendor == "postgresql":
            cursor.execute("SELECT collation_name FROM information_schema.columns WHERE table_name = 'test_txid_line'")
            assert ("C",) in cursor.fetchall()
        else:
            assert TxidField().db_parameters(connection)["type"] == "varchar(20)"
            cursor.execute("SELECT 'a' < 'B' COLLATE BINARY, sql FROM sqlite_master WHERE name = 'test_txid_line'")
            less, sql = cursor.fetchone()
            assert not less
            assert "COLLATE" not in sql


# --- lookups -----------------------------------------------------------------------------------------------------


def at(*times: datetime) -> list[str]:
    """The smallest and the largest id of the milliseconds of each time, and one between."""
    return [make(time) for time in times for make in (txid_min, txid, txid_max)]


def test_a_range_of_time_includes_both_ends(model: Any) -> None:
    second, ms = timedelta(seconds=1), timedelta(milliseconds=1)
    within = at(NOON, NOON + ms, NOON + second)
    outside = at(NOON - ms, NOON + second + ms, NOON - timedelta(days=9))
    model.objects.bulk_create(model(id=row_id, request=row_id) for row_id in [*within, *outside])
    for field in ("id", "request"):
        assert ids(model.objects.filter(**{f"{field}__txid_range": (NOON, NOON + second)})) == sorted(within)
        assert ids(model.objects.exclude(**{f"{field}__txid_range": (NOON, NOON + second)})) == sorted(outside)


def test_a_range_takes_all_kinds_of_times(model: Any) -> None:
    row = model.objects.create(id=txid(NOON))
    ms = parse(row.pk).ms
    with timezone.override("Asia/Tokyo"):
        naive = datetime(2026, 11, 21, 21)
        for time in (NOON, ms, ms + 0.75, naive, NOON.astimezone(timezone.get_fixed_timezone(-300))):
            assert model.objects.filter(id__txid_range=[time, time]).get() == row
    assert not model.objects.filter(id__txid_range=(naive, naive)).exists()


def test_a_range_beyond_all_times_contains_everything(model: Any) -> None:
    model.objects.create()
    far = (datetime(1950, 1, 1, tzinfo=UTC), datetime(2500, 1, 1, tzinfo=UTC))
    assert model.objects.filter(id__txid_range=far).count() == 1
    assert model.objects.filter(id__txid_range=far[::-1]).count() == 0


def test_a_day_follows_the_current_time_zone(model: Any) -> None:
    """Also one of 23 and one of 25 hours."""
    for day, hours in ((date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (date(2026, 11, 21), 24)):
        model.objects.all().delete()
        start = timezone.make_aware(datetime(day.year, day.month, day.day)).astimezone(UTC)
        end = start + timedelta(hours=hours)
        within = at(start, end - timedelta(milliseconds=1))
        model.objects.bulk_create(model(id=row_id) for row_id in [*within, *at(start - timedelta(milliseconds=1), end)])
        assert ids(model.objects.filter(id__txid_date=day)) == sorted(within)
    with timezone.override("Pacific/Auckland"):
        assert ids(model.objects.filter(id__txid_date=date(2026, 11, 21))) != sorted(within)


@pytest.mark.parametrize(
    ("lookup", "text"),
    [
        ({"id__txid_range": 5}, "needs a pair"),
        ({"id__txid_range": (1, 2, 3)}, "needs a pair"),
        ({"id__txid_date": NOON}, "needs a datetime.date"),
        ({"id__txid_date": "2026-11-21"}, "needs a datetime.date"),
        ({"id__txid_range": (float("nan"), 5)}, "finite"),
    ],
)
def test_invalid_times_are_refused(model: Any, lookup: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        model.objects.filter(**lookup)


def test_a_range_is_read_from_the_index(model: Any) -> None:
    row_ids = [txid(ms) for ms in range(0, 2_000_000, 1000)]
    model.objects.bulk_create(model(id=row_id, request=row_id) for row_id in row_ids)
    for field in ("id", "request"):
        query = model.objects.filter(**{f"{field}__txid_range": (5000, 9000)})
        assert query.count() == 5
        plan = query.explain()
        if connection.vendor == "sqlite":
            assert "SEARCH test_txid_line USING" in plan, plan
            assert f"({field}>? AND {field}<?)" in plan
        elif connection.vendor == "mysql":
            assert "range" in plan, plan


# --- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["x", "b2fr5nvq5alalalalal8", "w" * 20, 5, b"b2fr5nvq5alalalalal0"])
def test_invalid_txids_are_refused(model: Any, value: Any) -> None:
    with pytest.raises(ValidationError, match="not a transaction ID"):
        model(id=value, text="a").full_clean()
    with pytest.raises(ValidationError, match="not a transaction ID"):
        model.objects.create(id=value)
    with pytest.raises(ValidationError, match="not a transaction ID"):
        model.objects.filter(id=value).exists()


def test_upper_case_is_stored_and_found_in_lower_case(model: Any) -> None:
    new_id = txid()
    model.objects.create(id=new_id.upper(), request=new_id.upper())
    assert ids(model.objects.filter(id__in=[new_id.upper()])) == [new_id]
    assert model.objects.get(request=new_id.upper()).request == new_id
    assert model.objects.filter(id__startswith=new_id[:8]).count() == 1


def test_a_row_knows_the_request_that_made_it() -> None:
    field = TxidField(null=True, default=current)
    assert field.get_default() is None
    with bound() as request_id:
        assert field.get_default() == request_id
    assert "default=resty_django.txid.context.current" in MigrationWriter.serialize(field)[0]


def test_an_empty_value_is_null(model: Any) -> None:
    for value in (None, ""):
        assert model.objects.get(pk=model.objects.create(request=value).pk).request is None
    assert model.objects.filter(request=None).count() == 2


def test_fixtures_can_be_dumped_and_loaded(model: Any) -> None:
    row = model.objects.create(text="a", request=txid())
    field = model._meta.get_field("request")
    assert field.value_to_string(row) == row.request
    assert field.to_python(field.value_to_string(row)) == row.request
    assert row.request in serializers.serialize("json", [row])


def test_a_migration_omits_the_fixed_arguments_of_the_field() -> None:
    field = TxidField(primary_key=True, default=txid)
    _, path, args, kwargs = field.deconstruct()
    assert (path, args, kwargs) == (
        "resty_django.txid.fields.TxidField",
        [],
        {"primary_key": True, "default": txid},
    )
    text, imports = MigrationWriter.serialize(field)
    assert text == ("resty_django.txid.fields.TxidField(default=resty_django.txid.generator.txid, primary_key=True)")
    assert {"import resty_django.txid.fields", "import resty_django.txid.generator"} <= imports
    copy = TxidField(**kwargs)
    assert copy.max_length == 20
    assert field.check() == []


def test_a_serializer_made_from_the_model_refuses_invalid_txids(model: Any) -> None:
    class LineSerializer(ModelSerializer[Any]):
        class Meta:
            fields = ("request",)

    LineSerializer.Meta.model = model  # type: ignore[attr-defined]
    new_id = txid()
    serializer = LineSerializer(data={"request": new_id.upper()})
    assert serializer.is_valid(), serializer.errors
    row = serializer.save()
    row.refresh_from_db()
    assert row.request == new_id
    serializer = LineSerializer(data={"request": "w" * 20})
    assert not serializer.is_valid()
    assert "is not a transaction ID: A txid consists of 0-9 and a-v; character 1" in str(serializer.errors["request"])


# --- forms -------------------------------------------------------------------------------------------------------


def test_a_form_of_the_model_takes_txids(model: Any) -> None:
    form_class = forms.modelform_factory(model, fields=["request", "text"])
    assert isinstance(form_class.base_fields["request"], TxidFormField)
    new_id = txid()
    form = form_class({"request": f" {new_id.upper()} ", "text": "a"})
    assert form.is_valid()
    assert form.save().request == new_id
    form = form_class({"request": "", "text": "b"})
    assert form.is_valid()
    assert form.save().request is None
    form = form_class({"request": "x" * 20, "text": "c"})
    assert form.errors == {"request": ["Enter a transaction ID: 20 characters from 0-9 and a-v."]}


def test_a_form_field_reports_errors() -> None:
    field = TxidFormField()
    with pytest.raises(ValidationError, match="required"):
        field.clean("")
    with pytest.raises(ValidationError, match="20 characters"):
        field.clean("0" * 21)
    assert TxidFormField(required=False).clean("") is None
    assert 'maxlength="20"' in str(field.get_bound_field(forms.Form(), "txid"))
