"""IdField: a column with an ID of a rule, taken at the first save."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core import serializers
from django.db import DatabaseError, IntegrityError, connection, connections, migrations, models, transaction
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
from django.forms import modelform_factory
from django.test import Client
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.urls import path
from pytest_django import Settings

from resty_django.ids import next_id, next_ids, service
from resty_django.ids.errors import NeedsTransaction, UnknownRule
from resty_django.ids.fields import IdField
from resty_django.ids.models import IdRule

ROOT = Path(__file__).resolve().parents[3]
MakeRule = Callable[..., IdRule]
real = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


def shop_of(sale: Any) -> str:
    """The application name of the field Sale.local."""
    return str(sale.shop)


def define() -> SimpleNamespace:
    """Models of an online shop, not in the site's registry."""
    with isolate_apps("project.shop"):

        class Sale(models.Model):
            number = IdField(rule="order", app="shop")
            local = IdField("local number", rule="order", app=shop_of, unique=False)
            shop = models.CharField(max_length=20, default="berlin")
            total = models.IntegerField(default=0)

            class Meta:
                app_label = "shop"
                db_table = "test_idfield_sale"

            def __str__(self) -> str:
                return self.number

        class Export(Sale):
            form = IdField(rule="order", app="forms")

            class Meta:
                app_label = "shop"
                db_table = "test_idfield_export"

        class Keyed(models.Model):  # noqa: DJ008
            code = IdField(rule="order", primary_key=True)
            parent = models.ForeignKey("self", models.CASCADE, null=True)

            class Meta:
                app_label = "shop"
                db_table = "test_idfield_keyed"

        class Invoice(models.Model):  # noqa: DJ008
            name = models.CharField(max_length=20, primary_key=True)
            number = IdField(rule="invoice", max_length=20, editable=True)

            class Meta:
                app_label = "shop"
                db_table = "test_idfield_invoice"

    return SimpleNamespace(Sale=Sale, Export=Export, Keyed=Keyed, Invoice=Invoice)


@pytest.fixture
def shop(transactional_db: None, make_rule: MakeRule) -> Iterator[Any]:
    """The models with their tables, and their rules."""
    make_rule("order", "O{counter:06d}", max_counter=999_999, segment_size=100)
    make_rule("invoice", "R{counter:06d}", max_counter=999_999, min_counter=1, gapless=True)
    tables = define()
    created = [tables.Sale, tables.Export, tables.Keyed, tables.Invoice]
    with connection.schema_editor() as editor:
        for model in created:
            editor.create_model(model)
    try:
        yield tables
    finally:
        with connection.schema_editor() as editor:
            for model in reversed(created):
                editor.delete_model(model)


class TestSaving:
    pytestmark = real

    def test_the_first_save_takes_the_next_id(self, shop: Any) -> None:
        sales = [shop.Sale.objects.create() for _ in range(3)]
        assert [sale.number for sale in sales] == ["O000000", "O000001", "O000002"]
        assert shop.Sale.objects.get(number="O000001") == sales[1]

    def test_an_unsaved_object_has_no_id_and_takes_none(self, shop: Any) -> None:
        assert shop.Sale().number is None
        assert shop.Sale.objects.create().number == "O000000"

    def test_later_saves_keep_it(self, shop: Any) -> None:
        sale = shop.Sale.objects.create()
        sale.total = 5
        sale.save()
        shop.Sale.objects.only("total").get().save()
        assert shop.Sale.objects.get().number == "O000000"
        assert next_id("order", "shop") == "O000001"

    def test_a_value_of_the_caller_is_kept(self, shop: Any) -> None:
        assert shop.Sale.objects.create(number="old-7").number == "old-7"
        assert shop.Sale.objects.create(number="").number == "O000000"

    def test_the_application_name_can_depend_on_the_object(self, shop: Any) -> None:
        local = [shop.Sale.objects.create(shop=name).local for name in ("berlin", "bonn", "berlin")]
        assert local == ["O000000", "O000000", "O000001"]

    def test_bulk_create_fills_each_object(self, shop: Any) -> None:
        sales = shop.Sale.objects.bulk_create([shop.Sale(), shop.Sale(number="mine"), shop.Sale()], batch_size=2)
        assert [sale.number for sale in sales] == ["O000000", "mine", "O000001"]
        assert set(shop.Sale.objects.values_list("number", flat=True)) == {"O000000", "mine", "O000001"}

    def test_bulk_create_of_more_objects_than_a_segment(self, shop: Any) -> None:
        shop.Sale.objects.bulk_create(shop.Sale() for _ in range(250))
        assert shop.Sale.objects.values("number").distinct().count() == 250

    def test_async_saves(self, shop: Any) -> None:
        async def save() -> list[str]:
            sale = shop.Sale()
            await sale.asave()
            created, _ = await shop.Sale.objects.aget_or_create(total=9)
            (made,) = await shop.Sale.objects.abulk_create([shop.Sale()])
            return [sale.number, created.number, made.number]

        assert asyncio.run(save()) == ["O000000", "O000001", "O000002"]

    def test_get_or_create_takes_an_id_only_for_a_new_row(self, shop: Any) -> None:
        for _ in range(2):
            sale, _ = shop.Sale.objects.get_or_create(total=1)
            assert sale.number == "O000000"
            sale, _ = shop.Sale.objects.update_or_create(total=2, defaults={"shop": "bonn"})
            assert (sale.number, sale.shop) == ("O000001", "bonn")
        assert shop.Sale.objects.count() == 2

    def test_children_of_a_model_with_an_id(self, shop: Any) -> None:
        shop.Sale.objects.create()
        export = shop.Export.objects.create()
        assert (export.number, export.form) == ("O000001", "O000000")
        export.save()
        stored = shop.Export.objects.get()
        assert (stored.number, stored.form) == ("O000001", "O000000")

    def test_as_primary_key(self, shop: Any) -> None:
        first = shop.Keyed.objects.create()
        second, third = shop.Keyed.objects.bulk_create([shop.Keyed(parent=first), shop.Keyed()])
        assert (first.pk, second.pk, third.pk) == ("O000000", "O000001", "O000002")
        first.save()
        assert shop.Keyed.objects.get(parent="O000000").pk == "O000001"
        assert shop.Keyed.objects.count() == 3

    def test_a_row_is_never_renumbered_by_an_object_that_does_not_know_its_number(self, shop: Any) -> None:
        sale = shop.Sale.objects.create()
        with pytest.raises(IntegrityError):
            shop.Sale(pk=sale.pk, total=3).save()
        assert shop.Sale.objects.get().number == "O000000"
        assert shop.Sale.objects.create(pk=77).number == "O000001"

    def test_threads_get_different_ids(self, shop: Any) -> None:
        numbers: list[str] = []

        def create() -> None:
            try:
                for _ in range(20):
                    numbers.append(shop.Sale.objects.create().number)
            finally:
                connections.close_all()

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(numbers)) == len(numbers) == 80

    def test_in_a_transaction_without_reserved_numbers(self, shop: Any) -> None:
        """SQLite has one writer: the reservation thread would wait for this transaction."""
        with transaction.atomic():
            IdRule.objects.filter(name="invoice").update(description="written")
            first = shop.Sale.objects.create().number
        assert [first, shop.Sale.objects.create().number] == ["O000000", "O000001"]

    def test_a_rollback_undoes_no_id_that_another_row_has(self, shop: Any) -> None:
        shop.Sale.objects.create()
        for _ in range(2):
            with transaction.atomic():
                shop.Sale.objects.create()
                transaction.set_rollback(True)
            shop.Sale.objects.create()
        assert shop.Sale.objects.values("number").distinct().count() == 3


class TestGaplessRules:
    pytestmark = real

    def test_the_number_belongs_to_the_transaction(self, shop: Any) -> None:
        with transaction.atomic():
            shop.Invoice.objects.create(name="a")
        with transaction.atomic():
            assert shop.Invoice.objects.create(name="b").number == "R000002"
            transaction.set_rollback(True)
        with transaction.atomic():
            assert shop.Invoice.objects.create(name="c").number == "R000002"

    def test_outside_of_a_transaction(self, shop: Any) -> None:
        with pytest.raises(NeedsTransaction, match=r"^Rule invoice is gapless\. .* transaction\.atomic"):
            shop.Invoice.objects.create(name="a")
        assert not shop.Invoice.objects.exists()

    def test_bulk_create_takes_one_number_per_row(self, shop: Any) -> None:
        with transaction.atomic():  # from Django 6.1 on, bulk_create opens none itself
            invoices = shop.Invoice.objects.bulk_create(shop.Invoice(name=name) for name in "ab")
        assert [invoice.number for invoice in invoices] == ["R000001", "R000002"]

    def test_get_or_create_opens_one_itself(self, shop: Any) -> None:
        assert shop.Invoice.objects.get_or_create(name="c")[0].number == "R000001"

    def test_many_numbers_with_one_reservation(self, shop: Any) -> None:
        with transaction.atomic(), CaptureQueriesContext(connection) as queries:
            numbers = next_ids("invoice", 50)
            shop.Invoice.objects.bulk_create(shop.Invoice(name=number, number=number) for number in numbers)
        assert len(queries) < 15
        assert shop.Invoice.objects.filter(number="R000050").exists()


TWO_DATABASES = """
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["resty_django.ids"],
    DATABASES={
        name: {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{name}.sqlite3", "OPTIONS": {"timeout": 5}}
        for name in ("default", "other")
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    SECRET_KEY="two databases",
)
django.setup()
from django.core.management import call_command
from django.db import connections, models, transaction

from resty_django.ids.errors import NeedsTransaction
from resty_django.ids.fields import IdField
from resty_django.ids.models import IdRule

class Invoice(models.Model):
    sale = IdField(rule="order")
    number = IdField(rule="invoice")

    class Meta:
        app_label = "resty_ids"

call_command("migrate", verbosity=0)
with connections["other"].schema_editor() as editor:
    editor.create_model(Invoice)
IdRule.objects.create(name="order", source="O{counter:06d}")
IdRule.objects.create(name="invoice", source="R{counter:06d}", gapless=True)
with transaction.atomic(using="other"):
    try:
        Invoice().save(using="other")
    except NeedsTransaction as error:
        print(error)
with transaction.atomic(), transaction.atomic(using="other"):
    Invoice().save(using="other")
print(*Invoice.objects.using("other").values_list("sale", "number").get())
"""


def test_rows_in_another_database_than_the_rules(tmp_path: Path) -> None:
    """A gapless number needs a transaction on the rules' database, whichever database has the row."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_DATABASES],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "Rule invoice is gapless. Take its IDs inside transaction.atomic(using='default')."
    assert second == "O000001 R000000"


class TestFixtures:
    pytestmark = real

    def test_values_are_loaded_as_they_are(self, shop: Any) -> None:
        shop.Keyed.objects.create()
        self.loaded(shop, {"number": "old", "local": "L7"}).save()
        assert shop.Sale.objects.get().number == "old"
        assert next_id("order", "shop") == "O000000"

    def test_a_missing_value_is_an_error(self, shop: Any) -> None:
        loaded = self.loaded(shop, {"local": "L7"})
        with pytest.raises(IntegrityError):
            loaded.save()
        assert not shop.Sale.objects.exists()

    def loaded(self, shop: Any, fields: dict[str, Any]) -> Any:
        """Return the object of a fixture, as `loaddata` reads it."""
        text = json.dumps([{"model": "shop.sale", "pk": 1, "fields": fields}])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("django.core.serializers.python.apps.get_model", lambda name: shop.Sale)
            return next(iter(serializers.deserialize("json", text)))


class TestForms:
    pytestmark = real

    def test_a_model_form_does_not_have_it(self, shop: Any) -> None:
        form = modelform_factory(shop.Sale, fields="__all__")({"total": "3", "shop": "bonn"})
        assert set(form.fields) == {"total", "shop"}
        assert form.save().number == "O000000"

    def test_an_editable_one_may_stay_empty(self, shop: Any) -> None:
        form_class = modelform_factory(shop.Invoice, fields=["name", "number"])
        with transaction.atomic():
            assert form_class({"name": "a", "number": ""}).save().number == "R000001"
            assert form_class({"name": "b", "number": "X1"}).save().number == "X1"
            assert not form_class({"name": "c", "number": "X1"}).is_valid()

    def test_validation_of_an_object_without_one(self, shop: Any) -> None:
        shop.Sale.objects.create()
        sale = shop.Sale()
        sale.full_clean()
        sale.save()
        assert sale.number == "O000001"

    def test_the_admin_adds_an_object_and_shows_its_id(self, shop: Any, client: Client, settings: Settings) -> None:
        class SaleAdmin(admin.ModelAdmin):
            list_display = ("number", "total")
            readonly_fields = ("number",)
            search_fields = ("number",)

        site = admin.AdminSite()
        site.register(shop.Sale, SaleAdmin)
        urls = ModuleType("urls_of_the_test")
        urls.urlpatterns = [path("admin/", site.urls)]  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = urls
        client.force_login(User.objects.create_superuser("root"))
        page = client.get("/admin/shop/sale/add/").content.decode()
        assert "Number:" in page
        assert 'name="number"' not in page
        reply = client.post("/admin/shop/sale/add/", {"shop": "bonn", "total": "3"})
        assert reply.status_code == 302
        sale = shop.Sale.objects.get()
        assert sale.number == "O000000"
        assert "O000000" in client.get(f"/admin/shop/sale/{sale.pk}/change/").content.decode()
        assert "O000000" in client.get("/admin/shop/sale/?q=O000000").content.decode()
        client.post(f"/admin/shop/sale/{sale.pk}/change/", {"shop": "ulm", "total": "4"})
        assert shop.Sale.objects.values_list("number", "shop").get() == ("O000000", "ulm")


class TestErrors:
    pytestmark = real

    def test_a_rule_that_does_not_exist(self, shop: Any) -> None:
        IdRule.objects.filter(name="order").update(name="orders")
        service.stop()
        with pytest.raises(UnknownRule, match=r"^There is no rule 'order'\. Did you mean 'orders'\?$"):
            shop.Sale.objects.create()
        assert not shop.Sale.objects.exists()

    def test_an_id_that_does_not_fit(self, shop: Any) -> None:
        IdRule.objects.filter(name="invoice").update(source="{counter:030d}")
        service.stop()
        try:
            with transaction.atomic():
                number = shop.Invoice.objects.create(name="a").number
        except DatabaseError as error:
            number = "too long" if "too long" in str(error) else str(error)
        assert number == (f"{1:030d}" if connection.vendor == "sqlite" else "too long")  # SQLite stores any length


# --- migrations ---------------------------------------------------------------------------------------------------


def migration_of(model: Any) -> tuple[migrations.Migration, str]:
    """Return the first migration of a model, as `makemigrations` writes it and a site reads it."""
    (made,) = MigrationAutodetector(ProjectState(), state_of(model))._detect_changes()["shop"]
    text = MigrationWriter(made).as_string()
    module: dict[str, Any] = {}
    exec(text, module)  # noqa: S102
    return module["Migration"]("0001_initial", "shop"), text


def state_of(*used: Any) -> ProjectState:
    state = ProjectState()
    for model in used:
        state.add_model(ModelState.from_model(model))
    return state


def test_migrations_are_stable() -> None:
    tables = define()
    for model in (tables.Sale, tables.Keyed, tables.Invoice):
        migration, text = migration_of(model)
        state = migration.mutate_state(ProjectState())
        assert MigrationAutodetector(state, state_of(model))._detect_changes() == {}, text
        for field in model._meta.local_fields:
            rendered = state.apps.get_model("shop", model.__name__)._meta.get_field(field.name)
            assert rendered.deconstruct()[3] == field.deconstruct()[3]
    assert "resty_django.ids.fields.IdField(" in text


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_another_rule_or_name_changes_no_column(shop: Any) -> None:
    old, new = shop.Sale._meta.get_field("number"), IdField(rule="other", app="elsewhere")
    new.set_attributes_from_name("number")
    new.model = shop.Sale
    with connection.schema_editor(collect_sql=True) as editor:
        editor.alter_field(shop.Sale, old, new)
    assert editor.collected_sql == []


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_existing_rows_get_ids_in_a_data_migration(shop: Any) -> None:
    """As docs/howto/number-orders-in-a-model.md says: a column that may be empty, then the IDs, then the field."""
    number = shop.Sale._meta.get_field("number")
    empty = IdField(rule="order", app="shop", null=True)
    empty.set_attributes_from_name("number")
    empty.model = shop.Sale
    with connection.schema_editor() as editor:
        editor.alter_field(shop.Sale, number, empty)
    shop.Sale.objects.bulk_create(shop.Sale(number=f"x{digit}") for digit in range(3))
    shop.Sale.objects.update(number=None)
    for sale in shop.Sale.objects.order_by("pk"):
        sale.save(update_fields=["number"])
    with connection.schema_editor() as editor:
        editor.alter_field(shop.Sale, empty, number)
    assert list(shop.Sale.objects.order_by("pk").values_list("number", flat=True)) == ["O000000", "O000001", "O000002"]


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
def test_a_default_that_takes_an_id_when_an_object_is_made(make_rule: MakeRule) -> None:
    make_rule("order", "O{counter:06d}", max_counter=999_999)
    with isolate_apps("project.shop"):

        class Parcel(models.Model):  # noqa: DJ008
            number = models.CharField(max_length=20, unique=True, default=partial(next_id, "order", app="parcels"))

            class Meta:
                app_label = "shop"

    migration, text = migration_of(Parcel)
    # Django 6.1 writes the arguments as a call has them
    assert re.search(r"functools\.partial\(resty_django\.ids\.service\.next_id, .*'order'.*app.*'parcels'", text)
    state = migration.mutate_state(ProjectState())
    assert MigrationAutodetector(state, state_of(Parcel))._detect_changes() == {}
    assert [Parcel().number, Parcel().number, next_id("order", "parcels")] == ["O000000", "O000001", "O000002"]


# --- system checks ------------------------------------------------------------------------------------------------


RULES = [
    {"name": "order", "source": "O{now:%y%m%d}{counter:06d}", "reset_seconds": 86400},
    {"name": "named", "source": "{app}-{counter:03d}", "max_counter": 999},
    {"name": "salted", "source": "{counter:06d}{salt:4}"},
]


def faults(**options: Any) -> list[tuple[str, str]]:
    with isolate_apps("project.shop"):

        class Sale(models.Model):  # noqa: DJ008
            number = IdField(**options)

            class Meta:
                app_label = "shop"

        field = Sale._meta.get_field("number")
        return [(message.id, message.msg) for message in field.check() if message.obj is field]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, 'An IdField needs a rule. Name one, as in IdField(rule="order").'),
        ({"rule": "order", "null": True}, "An IdField is never empty. Remove null=True."),
        ({"rule": "order", "max_length": 12}, "IDs of rule 'order' have 13 characters. Set max_length to 13 or more."),
        (
            {"rule": "named", "app": "hamburg", "max_length": 10},
            "IDs of rule 'named' have 11 characters. Set max_length to 11 or more.",
        ),
        (
            {"rule": "order", "app": "a b"},
            "Rule 'order' does not suit an IdField: The app_name has the forbidden character ' '.",
        ),
        (
            {"rule": "salted"},
            "Rule 'salted' does not suit an IdField: The salt has 0 characters. This rule requires exactly 4.",
        ),
    ],
)
def test_wrong_options_are_reported(settings: Settings, options: dict[str, Any], text: str) -> None:
    settings.RESTY_DJANGO = {"IDS": {"RULES": RULES}}
    assert faults(**options) == [("resty_ids.E002", text)]


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "order", "max_length": 13},
        {"rule": "named", "app": shop_of, "max_length": 20},
        {"rule": "in the database", "max_length": 5},
        {"rule": "order", "unique": False, "editable": True, "blank": False},
    ],
)
def test_right_options_are_not(settings: Settings, options: dict[str, Any]) -> None:
    settings.RESTY_DJANGO = {"IDS": {"RULES": RULES}}
    assert faults(**options) == []


def test_wrong_settings_are_reported_by_their_own_check(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"RULES": 7}}
    assert faults(rule="order") == []
