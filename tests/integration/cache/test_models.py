"""Dependencies on models: what a committed change of rows invalidates, and what it leaves alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.checks import run_checks
from django.db import connection, models, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, TestCase
from django.test.utils import isolate_apps

from resty_django.cache import (
    LRU,
    BadOption,
    CacheInvalidatingManager,
    CacheInvalidatingQuerySet,
    MLCache,
    cache_view,
    cached,
    invalidate_on,
)
from resty_django.cache.model_dependencies import registry
from resty_django.cache.model_dependencies.changes import MAX_CHANGED_ROWS
from resty_django.shdict import SharedDict
from tests.integration.cache.conftest import Shared

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dependencies of other tests and of the demo do not count; receivers that stay connected find none."""
    monkeypatch.setattr(registry, "by_label", copy.copy(registry.by_label))
    registry.by_label.clear()


@pytest.fixture
def values(shared: Shared) -> SharedDict:
    return shared("values")


@pytest.fixture
def cache(values: SharedDict) -> MLCache:
    return MLCache("models", values, lru=LRU(100), ttl=1000)


class Counted:
    """Cached functions over groups, and how often they ran. `table` depends on all groups, `row` on one, `name` on one
    group's name, `names` on all names."""

    def __init__(self, cache: MLCache) -> None:
        self.runs: list[str] = []

        @cached(cache, name="table", depends_on=[Group])
        def table() -> int:
            self.runs.append("table")
            return Group.objects.count()

        @cached(cache, name="row", depends_on=[invalidate_on(Group, key="number")])
        def row(number: int, unused: str = "") -> Any:
            self.runs.append(f"row {number}")
            return Group.objects.filter(pk=number).values_list("name", flat=True).first()

        @cached(cache, name="name", depends_on=[invalidate_on("auth.Group", key="number", fields=("name",))])
        def name(number: int) -> Any:
            self.runs.append(f"name {number}")
            return Group.objects.filter(pk=number).values_list("name", flat=True).first()

        @cached(cache, name="names", depends_on=[invalidate_on(Group, fields=["name"])])
        def names() -> list[str]:
            self.runs.append("names")
            return sorted(Group.objects.values_list("name", flat=True))

        self.table, self.row, self.name, self.names = table, row, name, names

    def again(self, *numbers: int) -> set[str]:
        """Call all functions; return the names of those that ran."""
        self.runs.clear()
        self.table()
        self.names()
        for number in numbers:
            self.row(number)
            self.name(number)
        return set(self.runs)


@pytest.fixture
def counted(cache: MLCache) -> Counted:
    return Counted(cache)


@pytest.fixture
def groups(counted: Counted) -> tuple[Group, Group]:
    """Two groups, whose values are cached."""
    groups = Group.objects.create(name="tea"), Group.objects.create(name="coffee")
    counted.again(groups[0].pk, groups[1].pk)
    assert counted.again(groups[0].pk, groups[1].pk) == set()
    return groups


Groups = tuple[Group, Group]


def queryset() -> CacheInvalidatingQuerySet[Group]:
    return CacheInvalidatingQuerySet(Group)


def test_each_kind_of_change(counted: Counted, groups: Groups) -> None:
    tea, coffee = groups
    both = {"table", "names"}
    of_tea, of_coffee = ({f"row {group.pk}", f"name {group.pk}"} for group in groups)
    of_all = both | of_tea | of_coffee
    permission = Permission.objects.order_by("pk").first()
    assert permission is not None
    changes: list[tuple[Callable[[], Any], set[str]]] = [
        (lambda: tea.save(), both | of_tea),
        (lambda: tea.save(update_fields=["name"]), both | of_tea),
        (lambda: tea.save(update_fields=[]), set()),
        (lambda: tea.permissions.add(permission), {"table", f"row {tea.pk}"}),
        (lambda: tea.permissions.add(permission), set()),
        (lambda: tea.permissions.remove(permission), {"table", f"row {tea.pk}"}),
        (lambda: permission.group_set.add(tea, coffee), {"table", f"row {tea.pk}", f"row {coffee.pk}"}),
        (lambda: permission.group_set.clear(), {"table", f"row {tea.pk}", f"row {coffee.pk}"}),
        (lambda: tea.permissions.set([permission]), {"table", f"row {tea.pk}"}),
        (lambda: queryset().filter(pk=tea.pk).update(name="green tea"), of_all),
        (lambda: queryset().filter(pk=0).update(name="nothing"), set()),
        (lambda: queryset().bulk_update([tea], ["name"]), both | of_tea),
        (lambda: queryset().bulk_update([], ["name"]), set()),
        (lambda: queryset().bulk_create([Group(name="milk")]), both),
        (lambda: queryset().bulk_create([]), set()),
        (lambda: Group.objects.filter(pk=coffee.pk).delete(), both | of_coffee),
        (lambda: Group.objects.create(name="cocoa"), both),
        (lambda: User.objects.create(username="unrelated"), set()),
    ]
    for number, (change, expected) in enumerate(changes):
        change()
        assert counted.again(tea.pk, coffee.pk) - {f"row {coffee.pk + 1}"} == expected, f"change {number}"
        assert counted.again(tea.pk, coffee.pk) == set()


def test_row_that_did_not_exist(counted: Counted) -> None:
    pk = Group.objects.create(name="x").pk + 1
    counted.again(pk)
    assert (counted.row(pk), counted.name(pk)) == (None, None)
    assert Group.objects.create(name="tea", pk=pk).pk == pk
    assert counted.again(pk) == {"table", "names", f"row {pk}", f"name {pk}"}
    assert counted.row(pk) == "tea"


def test_changes_of_more_rows_than_have_separate_tags(counted: Counted, groups: Groups) -> None:
    with transaction.atomic():
        for number in range(MAX_CHANGED_ROWS + 1):
            Group.objects.create(name=f"group {number}")
    assert f"row {groups[0].pk}" in counted.again(groups[0].pk)


# --- transactions ---


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction, or a savepoint in one, that is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_nothing_is_invalidated_before_the_commit_or_by_a_rollback(counted: Counted, groups: Groups) -> None:
    pk = groups[0].pk
    with transaction.atomic():
        Group.objects.filter(pk=pk).first().save()  # type: ignore[union-attr]
        assert counted.again(pk) == set()
    assert counted.again(pk) == {"table", "names", f"row {pk}", f"name {pk}"}
    with rolled_back():
        groups[0].save()
    assert counted.again(pk) == set()


def test_rolled_back_savepoint(counted: Counted, groups: Groups) -> None:
    """Changes before, in and after a savepoint that is rolled back; those outside are invalidated."""
    tea, coffee = groups
    with transaction.atomic():
        with rolled_back():
            tea.save()
        coffee.save()
    assert counted.again(tea.pk, coffee.pk) == {"table", "names", f"row {coffee.pk}", f"name {coffee.pk}"}
    with transaction.atomic():
        coffee.save()
        with rolled_back():
            tea.save()
    assert counted.again(tea.pk, coffee.pk) == {"table", "names", f"row {coffee.pk}", f"name {coffee.pk}"}
    with transaction.atomic():
        with transaction.atomic():
            tea.save()
        coffee.save()
    assert {f"row {tea.pk}", f"row {coffee.pk}"} <= counted.again(tea.pk, coffee.pk)


def test_one_invalidation_for_many_changes(counted: Counted, cache: MLCache, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(cache, "invalidate_tags", lambda *tags: calls.append(tags))
    with transaction.atomic():
        made = [Group.objects.create(name=f"group {number}") for number in range(5)]
        for group in made:
            group.save()
    assert len(calls) == 1
    assert len(calls[0]) == 2 * (1 + 5)
    calls.clear()
    Group.objects.all().delete()
    assert len(calls) == 1


def test_uncommitted_values_are_not_cached(counted: Counted, groups: Groups) -> None:
    """A function that runs in the transaction sees the change; if that is rolled back, nobody else may see it."""
    tea, _ = groups
    counted.row.invalidate(tea.pk)
    with rolled_back():
        tea.name = "uncommitted"
        tea.save()
        assert counted.row(tea.pk) == "uncommitted"
        assert counted.row.refresh(tea.pk) == "uncommitted"
        assert counted.row.peek(tea.pk) is None
    assert counted.row(tea.pk) == "tea"


class TestInDjangosTestCase(TestCase):
    def test_callbacks_of_the_commit_invalidate(self) -> None:
        """Django's TestCase rolls back, so its tests run the callbacks of the commit themselves."""
        counted = Counted(MLCache("in a test", lru=LRU(10)))
        group = Group.objects.create(name="tea")
        counted.table()
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            group.save()
        assert len(callbacks) == 1
        assert counted.again() == {"table", "names"}


async def test_async_changes(counted: Counted) -> None:
    group = await Group.objects.acreate(name="tea")
    again = sync_to_async(counted.again)
    await again(group.pk)
    for change, expected in (
        (lambda: group.asave(), {"table", "names", f"row {group.pk}", f"name {group.pk}"}),
        (lambda: queryset().aupdate(name="x"), {"table", "names", f"row {group.pk}", f"name {group.pk}"}),
        (lambda: queryset().abulk_create([Group(name="y")]), {"table", "names"}),
        (lambda: queryset().abulk_update([group], ["name"]), {"table", "names", f"row {group.pk}", f"name {group.pk}"}),
        (lambda: group.adelete(), {"table", "names", f"row {group.pk}", f"name {group.pk}"}),
    ):
        pk = group.pk
        await change()
        assert await again(pk) == expected


def test_failing_cache_does_not_fail_the_change(
    counted: Counted, cache: MLCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*tags: str) -> None:
        raise OSError("the store is down")

    monkeypatch.setattr(cache, "invalidate_tags", refuse)
    Group.objects.create(name="tea")
    assert "were not invalidated: the store is down" in caplog.text


# --- other uses ---


def test_method_of_a_model(cache: MLCache) -> None:
    class Tea(Group):
        @cached(cache, name="length", key=lambda group: group.pk, depends_on=[invalidate_on(Group, key="self")])
        def length(self) -> int:
            return len(self.name)

        class Meta:
            proxy = True
            app_label = "auth"

    try:
        registry.listen("auth.group")
        tea = Tea.objects.create(name="tea")
        assert tea.length() == 3
        tea.name = "green"
        assert tea.length() == 3
        Group(pk=tea.pk, name="green").save()
        assert tea.length() == 5
        tea.name = "oolong"
        tea.save()
        assert tea.length() == 6, "a change through the proxy"
    finally:
        del Group._meta.apps.all_models["auth"]["tea"]
        Group._meta.apps.clear_cache()


def test_object_identified_by_its_key(cache: MLCache) -> None:
    runs: list[int] = []

    class Described:
        @cached(cache, name="describe", by="pk", depends_on=[Group])
        def describe(self) -> int:
            runs.append(1)
            return len(runs)

    describe = Described.__dict__["describe"]
    tags = describe.options["tags"]
    group = Group.objects.create(name="tea")
    assert tags((group,), {}) == (f"model:auth.group:{group.pk}", "model:auth.group:*")
    assert tags((object(),), {}) == ("model:auth.group",)


def test_a_view_depends_on_rows(cache: MLCache) -> None:
    @cache_view(60, cache, depends_on=[invalidate_on(Group, key="number")], tags=("pages",))
    def view(request: HttpRequest, number: str) -> HttpResponse:
        return HttpResponse(Group.objects.get(pk=number).name)

    def page(group: Group) -> str:
        return view(RequestFactory().get(f"/{group.pk}/"), number=str(group.pk)).content.decode()

    tea, coffee = Group.objects.create(name="tea"), Group.objects.create(name="coffee")
    assert (page(tea), page(coffee)) == ("tea", "coffee")
    for group in (tea, coffee):
        group.name = f"new {group.name}"
    tea.save()
    Group.objects.filter(pk=coffee.pk).update(name="new coffee")
    assert (page(tea), page(coffee)) == ("new tea", "coffee"), "Django's own manager sends no signal for update()"
    cache.invalidate_tags("pages")
    assert page(coffee) == "new coffee"


def test_values_that_are_set_with_the_tags(cache: MLCache) -> None:
    dependency = invalidate_on(Group, cache=cache)
    group = Group.objects.create(name="tea")
    cache.set("row", 1, tags=dependency.tags(str(group.pk)))
    cache.set("table", 1, tags=dependency.tags())
    User.objects.create(username="unrelated")
    assert (cache.get("row"), cache.get("table")) == (1, 1)
    group.save()
    assert (cache.get("row"), cache.get("table")) == (None, None)


@isolate_apps("project")
def test_models_that_inherit_fields() -> None:
    class Product(models.Model):  # noqa: DJ008
        objects = CacheInvalidatingManager()

        class Meta:
            app_label = "project"

    class Book(Product):  # noqa: DJ008
        class Meta:
            app_label = "project"

    class OldBook(Book):  # noqa: DJ008
        class Meta:
            proxy = True
            app_label = "project"

    for label in ("project.product", "project.oldbook"):
        registry.add(label, None, "default", "test")
        for model in (Product, Book, OldBook):
            assert registry.models_of(model) == {name: Book._meta.apps.get_model(name) for name in registry.by_label}
    assert registry.models_of(Group) == {}
    assert isinstance(Product.objects.all(), CacheInvalidatingQuerySet)


def test_primary_keys_in_tags() -> None:
    dependency = invalidate_on(Group)
    assert dependency.tags("7") == dependency.tags(7) == ("model:auth.group:7", "model:auth.group:*")
    assert dependency.tags("x" * 300)[0].startswith("model:auth.group:#")
    assert invalidate_on(Group, fields=("name", "permissions")).tags() == ("model:auth.group[name,permissions]",)
    assert all(len(tag) < 200 for tag in invalidate_on(Group, fields=[f"field{n}" for n in range(99)]).tags("x" * 300))


# --- mistakes ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cached(depends_on=Group)(len), r"^depends_on must be a list of models, labels or invalidate_on\(\)"),
        (lambda: cached(depends_on="auth.Group")(len), r"^depends_on must be a list"),
        (lambda: cached(depends_on=[int])(len), r"^A dependency must be a model, or a label such as"),
        (lambda: cached(depends_on=["Group"])(len), r"not 'Group'\.$"),
        (lambda: invalidate_on(Group, key=7), r"^key must be the name of a parameter"),
        (lambda: invalidate_on(Group, fields="name"), r"^fields must be a tuple of names of fields, not 'name'\.$"),
        (lambda: cached(name="x", depends_on=[invalidate_on(Group, key="numbr")])(_of), r"Did you mean 'number'\?$"),
        (lambda: invalidate_on("auth.Grup").tags(7), r"'auth\.grup' is not installed\. Did you mean 'auth\.Group'\?$"),
    ],
)
def test_mistakes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        call()


def _of(number: int) -> int:
    return number


def test_cache_without_a_channel(values: SharedDict) -> None:
    with pytest.raises(BadOption, match="ipc"):
        cached(MLCache("quiet", values, ipc=None), name="x", depends_on=[Group])(_of)


def test_system_checks() -> None:
    cached(name="wrong model", depends_on=["auth.Grup"])(_of)
    cached(name="wrong app", depends_on=["nothing.Like"])(_of)
    cached(name="wrong field", depends_on=[invalidate_on(Group, fields=("nam", "name"))])(_of)
    cached(name="right", depends_on=["auth.Group", ContentType])(_of)
    found = {(message.id, message.msg, message.hint) for message in run_checks() if "depends on" in message.msg}
    assert found == {
        (
            "resty_cache.E003",
            "wrong model depends on the model 'auth.grup', which is not installed.",
            "Did you mean 'auth.group'?",
        ),
        (
            "resty_cache.E003",
            "wrong app depends on the model 'nothing.like', which is not installed.",
            "Add its app to INSTALLED_APPS, or correct the label.",
        ),
        (
            "resty_cache.E004",
            "wrong field depends on the field 'nam', which auth.Group does not have.",
            "Did you mean 'name'?",
        ),
    }


def test_no_transaction_management(counted: Counted, groups: Groups) -> None:
    """A site that manages transactions itself: the values are deleted at once."""
    connection.set_autocommit(False)
    try:
        groups[0].save()
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert counted.again() == {"table", "names"}
