"""Values beyond the types of msgpack: they come back from L2 as they were, without pickle, or count as a miss.

Private names: `classes._by_name` and `_unresolved`, to change or forget a class, as another version of the site would.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from django.contrib.auth.models import Group, User
from django.db.models import Count
from django.db.models.functions import Length
from django.utils.functional import SimpleLazyObject
from hypothesis import given
from hypothesis import strategies as st

from resty_django.cache import LRU, BadOption, BadValue, MLCache, cached, mlcaches, register_type
from resty_django.cache.serialization import classes, rows
from resty_django.cache.serialization.values import typed, unpack
from resty_django.cache.storage import records
from tests.integration.cache.conftest import Make, Shared, value


@register_type
@dataclass(frozen=True)
class Price:
    amount: Decimal
    since: date
    tags: tuple[str, ...] = ()
    of: dict[str, UUID] = dataclasses.field(default_factory=dict)


class Offer(msgspec.Struct):
    price: Price
    until: datetime | None = None


class Unregistered(msgspec.Struct):
    number: int


@dataclass
class Opaque:
    name: str
    content: Any


BERLIN = ZoneInfo("Europe/Berlin")
SCALARS: list[Any] = [
    Decimal("17.50"),
    Decimal("NaN").copy_sign(Decimal(-1)),
    Decimal("-1E+400"),
    datetime(2026, 3, 1, 12, 30, 5, 7),
    datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    datetime(2026, 3, 1, 12, 30, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    date(1, 1, 1),
    time(23, 59, 59, 999999),
    time(1, 2, tzinfo=UTC),
    time(1, 2, tzinfo=BERLIN),
    timedelta(days=-1, microseconds=1),
    UUID(int=7),
]


def stored(content: Any) -> Any:
    """The value as L2 returns it."""
    public, form = typed(content)
    record = records.decode(records.encode(form, 0.0, 60.0, False), unpack)
    assert record is not None
    assert type(record.value) is type(public)
    return record.value


@pytest.mark.parametrize("content", SCALARS, ids=repr)
def test_scalars(content: Any) -> None:
    copy = stored(content)
    assert repr(copy) == repr(content)
    assert type(copy) is type(content)
    assert getattr(copy, "fold", 0) == getattr(content, "fold", 0)
    assert repr(stored({"a": [content, {"b": content}]})) == repr({"a": [content, {"b": content}]})


@given(st.decimals() | st.datetimes() | st.dates() | st.times() | st.timedeltas() | st.uuids())
def test_any_scalar(content: Any) -> None:
    assert repr(stored(content)) == repr(content)


@pytest.mark.parametrize("level", ["L1", "L2"])
async def test_levels_return_the_same(make: Make, level: str) -> None:
    a = make()
    content = {"price": Decimal("1.5"), "items": (1, Decimal(2)), "when": datetime(2026, 1, 1, tzinfo=UTC)}
    expected = {**content, "items": [1, Decimal(2)]}
    assert (await a.lookup("k", value(content)))[0] == expected
    if level == "L2":
        a.cache.lru.flush_all()
    assert await a.lookup("k") == (expected, None, int(level[1]))


def test_plain_values_are_stored_as_before(shared: Shared) -> None:
    cache = MLCache("c", shared("values"))
    cache.set("k", {"a": [1, "x"]})
    assert shared("values").get("c:k")[18:] == msgspec.msgpack.encode({"a": [1, "x"]})


# --- dataclasses and Structs ---


def test_dataclasses_and_structs() -> None:
    price = Price(Decimal("17.50"), date(2026, 1, 1), ("a", "b"), {"x": UUID(int=7)})
    assert stored([price]) == [price]
    register_type(Offer)
    assert stored(Offer(price)) == Offer(price)


def test_classes_of_the_return_annotation(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_by_name", {})
    cache = MLCache("typed", shared("values"), lru=LRU(9))

    @cached(cache, name="offers")
    def offers() -> dict[str, list[Offer | None]]:
        return {"x": [Offer(Price(Decimal(1), date(2026, 1, 1))), None]}

    first = offers()
    cache.lru.flush_all()
    offers.__wrapped__ = None  # type: ignore[assignment]
    assert offers() == first
    assert type(offers()["x"][0]) is Offer
    assert offers.peek() is not None


def test_annotation_that_names_a_later_class(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_by_name", {})
    cache = MLCache("typed", shared("values"), lru=LRU(9))

    def later() -> Any:
        return Unregistered(7)

    later.__annotations__["return"] = "NotYet"
    load = cached(cache, name="later")(later)
    with pytest.raises(BadValue, match="is not registered"):
        load()
    monkeypatch.setitem(later.__globals__, "NotYet", Unregistered)
    classes._unresolved.append(later)
    assert load() == Unregistered(7)


def test_changed_class_is_a_miss(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    form = typed(Price(Decimal(1), date(2026, 1, 1)))[1]
    raw = records.encode(form, 0.0, 60.0, False)
    assert records.decode(raw, unpack) is not None
    name = f"{Price.__module__}.Price"
    known = classes._by_name[name]
    monkeypatch.setitem(classes._by_name, name, known._replace(fingerprint=b"other"))
    assert records.decode(raw, unpack) is None
    monkeypatch.delitem(classes._by_name, name)
    assert records.decode(raw, unpack) is None, "nothing is imported by a name in the store"


# --- models ---


def test_lazy_objects_are_stored_as_their_wrapped_objects() -> None:
    user = User(pk=7, username="ann")
    lazy = SimpleLazyObject(lambda: user)  # as `request.user`
    kept, stored = typed({"user": lazy, "name": SimpleLazyObject(lambda: "ann")})
    assert (type(kept["user"]), type(kept["name"])) == (User, str)
    again = unpack(msgspec.msgpack.encode(stored))
    assert (again["user"], again["name"]) == (user, "ann")
    assert unpack(msgspec.msgpack.encode(typed(Group(pk=1, name=SimpleLazyObject(lambda: "g")))[1])).name == "g"  # type: ignore[misc]


@pytest.mark.django_db
def test_model_instances() -> None:
    user = User.objects.create_user("ann", password="x", last_login=datetime(2026, 1, 1, tzinfo=UTC))
    copy = stored(user)
    assert (type(copy), copy, copy.last_login, copy._state.db, copy._state.adding) == (
        User,
        user,
        user.last_login,
        "default",
        False,
    )
    copy.first_name = "Ann"
    copy.save()
    assert User.objects.get().first_name == "Ann"
    unsaved = stored(User(username="ben"))
    assert (unsaved.pk, unsaved._state.adding) == (None, True)
    deferred = stored(User.objects.only("username").get())
    assert deferred.get_deferred_fields() == User.objects.only("username").get().get_deferred_fields()
    assert deferred.first_name == "Ann"
    counted = User.objects.annotate(n=Count("groups"), length=Length("username")).get()
    assert (stored(counted).n, stored(counted).length) == (0, 3)


@pytest.mark.django_db
@pytest.mark.parametrize("hit", [1, 2])
def test_queryset_of_a_cached_function(shared: Shared, hit: int, django_assert_num_queries: Any) -> None:
    cache = MLCache("rows", shared("values"), lru=LRU(9))

    @cached(cache, name="groups")
    def groups() -> Any:
        return Group.objects.order_by("name")

    for name in ("tea", "coffee"):
        Group.objects.create(name=name)
    assert [group.name for group in groups()] == ["coffee", "tea"]
    if hit == 2:
        cache.lru.flush_all()
    with django_assert_num_queries(0):
        assert type(groups()) is list
        assert [(type(group), group.name) for group in groups()] == [(Group, "coffee"), (Group, "tea")]


@pytest.mark.django_db(transaction=True)
async def test_queryset_of_a_cached_coroutine_function(shared: Shared) -> None:
    cache = MLCache("rows", shared("values"), lru=LRU(9))

    @cached(cache, name="agroups")
    async def groups() -> Any:
        return Group.objects.order_by("name")

    @cached(cache, name="names")
    async def names() -> Any:
        return Group.objects.values_list("name", "pk")

    group = await Group.objects.acreate(name="tea")
    assert await groups() == [group]
    assert await names() == [["tea", group.pk]]
    cache.lru.flush_all()
    assert await groups() == [group]


def test_changed_model_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = records.encode(typed([Group(name="tea")])[1], 0.0, 60.0, False)
    assert records.decode(raw, unpack) is not None
    monkeypatch.setattr(rows, "fingerprint", lambda kind: b"other")
    assert records.decode(raw, unpack) is None


# --- hostile bytes ---

EXT = msgspec.msgpack.Ext
PACK = msgspec.msgpack.encode


@pytest.mark.parametrize(
    "content",
    [
        EXT(99, b""),
        EXT(1, PACK("no number")),
        EXT(1, PACK([1])),
        EXT(2, PACK(["2026-01-01T00:00:00", "../../etc/passwd", 0])),
        EXT(2, PACK(["2026-01-01T00:00:00", "No/Where", 0])),
        EXT(2, PACK(["x"])),
        EXT(5, PACK([10**12, 0, 0])),
        EXT(6, PACK(b"short")),
        EXT(10, PACK(["os.system", b"", b""])),
        EXT(10, PACK(["a"])),
        EXT(11, PACK(["auth.nothing", b"", "default", False, [], [], {}])),
        EXT(11, PACK(["auth", b"", "default", False, [], [], {}])),
        EXT(11, PACK(["auth.group", rows.fingerprint(Group), "default", False, ["nothing"], [1], {}])),
        EXT(11, PACK(["auth.group", rows.fingerprint(Group), "default", False, ["id"], [], {}])),
        EXT(11, PACK(["auth.group", rows.fingerprint(Group), "default", False, ["id"], [1], {"save": 1}])),
        EXT(11, PACK(["auth.group", rows.fingerprint(Group), "default", False, ["id"], [1], {"_state": 1}])),
        EXT(11, PACK(7)),
    ],
)
def test_hostile_objects_count_as_absent(content: Any) -> None:
    assert records.decode(records.encode([content], 0.0, 60.0, False), unpack) is None


# --- mistakes ---


class Shop:
    pass


class OwnZone(tzinfo):
    def __repr__(self) -> str:
        return "<OwnZone>"

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(0)


UNSUPPORTED: list[tuple[Any, str]] = [
    (
        {"items": [1, {"shop": Shop()}]},
        r"^A value of type Shop at \['items'\]\[1\]\['shop'\] cannot be cached\. Use",
    ),
    (Shop(), r"^A value of type Shop cannot be cached\. Use None, str,"),
    ({Decimal(1): 1, "x": Decimal(1)}, r"^A key of type Decimal cannot be cached"),
    (
        [Unregistered(1)],
        r"^A value of type Unregistered at \[0\] is of a class that is not registered;",
    ),
    ([Group(name=Shop())], r"^A value of type Shop at \[0\]\.name cannot be cached"),
    (
        datetime(2026, 1, 1, tzinfo=OwnZone()),
        r"^A value of type datetime has the time zone <OwnZone>; use",
    ),
    ({"x": 2**70, "y": Decimal(1)}, r"cannot be written as msgpack"),
]


def test_unsupported_values(shared: Shared) -> None:
    for content, message in UNSUPPORTED:
        with pytest.raises(BadValue, match=message):
            MLCache("c", shared("values")).set("k", content)


def test_field_that_msgspec_cannot_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_by_name", dict(classes._by_name))
    register_type(Opaque)
    with pytest.raises(BadValue, match=r"Shop at \['x'\]\.content"):
        typed({"x": Opaque("x", Shop())})


def test_value_that_contains_itself() -> None:
    endless: list[Any] = [Decimal(1)]
    endless.append(endless)
    with pytest.raises(BadValue, match="contains itself"):
        typed(endless)


def test_wrong_classes() -> None:
    @dataclass
    class Local:
        number: int

    with pytest.raises(BadOption, match="defined inside a function"):
        register_type(Local)
    with pytest.raises(BadOption, match="register_type"):
        register_type(int)


class Ranges:
    """A serializer that the settings name."""

    def encode(self, content: range) -> Any:
        return [content.start, content.stop]

    def decode(self, form: list[int]) -> Any:
        return range(*form)


def test_serializer_in_the_settings(site: Any) -> None:
    path = f"{__name__}.Ranges"
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"ranges": {"SERIALIZER": path}}}
    cache = mlcaches["ranges"]
    assert cache.get("k", value(range(2, 7))) == range(2, 7)
    cache.lru.flush_all()
    assert cache.get("k") == range(2, 7)
    with pytest.raises(BadOption, match="serializer"):
        MLCache("c", serializer=7)  # type: ignore[arg-type]
