"""Tags: invalidation of many keys at once, in all processes, without a race against a source that is being read.

Private names: in `_reader._promote` another process comes in between; `_reading` must not be called; `_keys` of the
index, since entries that nobody removes show in memory alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from resty_django.cache import (
    LRU,
    BadOption,
    MLCache,
    NoChannel,
    ainvalidate_tags,
    cache_view,
    cached,
    invalidate_tags,
    mlcaches,
)
from resty_django.cache.storage import records
from resty_django.cache.tags import names
from resty_django.cache.tags.versions import TAG_PREFIX
from resty_django.sansio import run
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Make, Process, Shared, value

TAGS = ("product:7", "shop:3")


async def filled(process: Process, key: str = "k", answer: Any = "old", **options: Any) -> None:
    assert (await process.lookup(key, value(answer), **{"tags": TAGS, **options}))[0] == answer


async def test_value_that_was_set_without_tags(make: Make) -> None:
    a = make()
    await filled(a)
    await a.do("invalidate_tags", *TAGS)
    await a.do("set", "k", "new")
    await a.do("invalidate_tags", *TAGS)
    assert await a.lookup("k") == ("new", None, 1)


async def test_function_of_the_callbacks_arguments(make: Make) -> None:
    a = make()

    def tags(number: int) -> tuple[str]:
        return (f"product:{number}",)

    for number in (7, 8):
        await a.lookup(f"k{number}", lambda number: number, number, tags=tags)
    await a.do("invalidate_tags", "product:7")
    assert await a.lookup("k7") == (None, None, -1)
    assert await a.lookup("k8") == (8, None, 1)


# --- races ---


async def test_source_that_was_read_before_the_invalidation(make: Make) -> None:
    """The callback reads, another process invalidates, and then the callback's value is stored."""
    a, b = make("A"), make("B")
    database = {"k": "old"}

    def slow() -> str:
        content = database["k"]
        database["k"] = "new"
        b.cache.invalidate_tags("product:7")
        return content

    assert await a.lookup("k", slow, tags=TAGS) == ("old", None, 3)
    assert await b.lookup("k", lambda: database["k"], tags=TAGS) == ("new", None, 3)
    await a.update()
    assert await a.lookup("k", value("unused")) == ("new", None, 2)


async def test_event_that_arrives_while_the_source_is_read(make: Make) -> None:
    a, b = make("A"), make("B")

    def slow() -> str:
        b.cache.invalidate_tags("product:7")
        a.cache.update()
        return "old"

    await a.lookup("k", slow, tags=TAGS)
    assert await a.lookup("k") == (None, None, -1), "L1 keeps nothing that was invalidated while it was read"


async def test_refresh_whose_source_was_read_before_the_invalidation(make: Make) -> None:
    a, b = make("A"), make("B")

    def slow() -> str:
        b.cache.invalidate_tags("product:7")
        return "old"

    await a.do("refresh", "k", a.callback(slow), tags=TAGS)
    await a.update()
    assert await a.lookup("k") == (None, None, -1)
    assert await b.lookup("k") == (None, None, -1)


async def test_event_between_the_read_of_l2_and_l1(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has found its versions valid; the invalidation and its event come before it stores the value in L1."""
    a, b = make("A"), make("B")
    await filled(a)
    promote, done = b.cache._reader._promote, []

    def late(*args: Any) -> Any:
        if not done:
            done.append(1)
            a.cache.invalidate_tags("product:7")
            b.cache.update()
        return promote(*args)

    monkeypatch.setattr(b.cache._reader, "_promote", late)
    assert (await b.lookup("k"))[:2] == ("old", None)
    assert await b.lookup("k") == (None, None, -1)


async def test_record_that_another_process_replaced_is_kept(make: Make) -> None:
    """Between the look at an invalid record and the store of a value, another process has set one."""
    a, b = make("A"), make("B")
    await filled(a)
    await a.do("invalidate_tags", "product:7")

    def slow() -> str:
        b.cache.set("k", "set")
        return "loaded"

    assert (await a.lookup("k", slow, tags=TAGS))[0] == "loaded"
    await a.update()
    assert await a.lookup("k") == ("set", None, 2)


# --- versions that are lost ---


async def test_lost_version_makes_records_invalid(make: Make, shared: Shared) -> None:
    """An evicted version is created again with another number, so that old records never become valid again."""
    a, b = make("A"), make("B")
    await filled(a)
    assert shared("values").delete(f"{TAG_PREFIX}c:shop:3")
    assert await b.lookup("k") == (None, None, -1)
    await filled(a, "other")
    assert await b.lookup("k") == (None, None, -1)
    assert await b.lookup("other") == ("old", None, 2)


async def test_version_of_a_foreign_type(make: Make, shared: Shared) -> None:
    a = make()
    await filled(a)
    shared("values").set(f"{TAG_PREFIX}c:shop:3", "foreign")
    a.cache.lru.flush_all()
    assert await a.lookup("k") == (None, None, -1)


# --- stale values ---


async def test_invalidated_value_is_not_served_while_it_is_refreshed(make: Make, clock: Clock) -> None:
    a = make(stale_while_revalidate=100, ttl=10)
    await filled(a)
    clock.advance(11)
    assert await a.lookup("k", value("new"), tags=TAGS) == ("old", None, 4)
    a = make("B", stale_while_revalidate=100, ttl=10)
    await filled(a, "l")
    await a.do("invalidate_tags", "shop:3")
    clock.advance(11)
    assert await a.lookup("l", value("new"), tags=TAGS) == ("new", None, 3)


# --- cost and format ---


async def test_untagged_record_has_the_old_format(make: Make, shared: Shared) -> None:
    a = make()
    await a.do("set", "k", "x")
    raw = shared("values").get("c:k")
    assert len(raw) == 18 + 2
    assert raw[1] == 0


async def test_untagged_hit_reads_no_version(make: Make, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    a = make()
    await a.do("set", "k", "x")
    a.cache.lru.flush_all()

    def refuse(*args: Any) -> Any:
        raise AssertionError("versions were read")

    monkeypatch.setattr(a.cache.levels.tags, "_reading", refuse)
    assert await a.lookup("k") == ("x", None, 2)
    assert await a.lookup("l", value("y")) == ("y", None, 3)


async def test_the_index_of_tags_is_bounded(make: Make) -> None:
    a = make()
    for number in range(600):
        await a.do("set", f"k{number}", number, tags=(f"product:{number}", "all"))
    index = a.cache.levels.index
    assert len(index) <= 2 * a.cache.lru.max_items + 64
    assert len(index._keys) <= len(index) + 1
    await a.do("invalidate_tags", "all")
    assert len(index) < 2 * a.cache.lru.max_items + 64
    assert a.cache.lru.count() == 0


@pytest.mark.parametrize("versions", [{}, {"a": 1}, {"tag ü": 2**62, "b": 0}])
@pytest.mark.parametrize("content", [None, "x", [1, {"a": b"\0"}]])
def test_records_hold_the_versions_of_their_tags(versions: dict[str, int], content: Any) -> None:
    raw = records.encode(content, 5.0, 60.0, False, versions)
    record = records.decode(raw)
    assert record == records.Record(content, 5.0, 60.0, False, versions or None)
    for end in range(18, len(raw)):
        cut = records.decode(raw[:end])
        assert cut is None or cut == record or not versions


# --- decorators ---


@pytest.fixture
def products(shared: Shared) -> MLCache:
    return MLCache("products", shared("values"), lru=LRU(100))


def test_a_cached_function_has_tags(products: MLCache) -> None:
    runs: list[int] = []

    @cached(products, name="load", tags=lambda number, language="en": (f"product:{number}", language))
    def load(number: int, language: str = "en") -> int:
        runs.append(number)
        return number

    for _ in range(2):
        assert (load(7), load(8), load(number=7, language="de")) == (7, 8, 7)
    assert runs == [7, 8, 7]
    products.invalidate_tags("product:7")
    assert (load(7), load(8), load(7, "de")) == (7, 8, 7)
    assert runs == [7, 8, 7, 7, 7]
    products.invalidate_tags("en")
    assert (load(7), load(8), load(7, "de")) == (7, 8, 7)
    assert runs[5:] == [7, 8]
    load.refresh(7)
    products.invalidate_tags("en")
    load(7)
    assert runs[7:] == [7, 7]


async def test_a_cached_coroutine_function_has_tags(products: MLCache) -> None:
    runs: list[int] = []

    @cached(products, name="aload", tags=("all",))
    async def load(number: int) -> int:
        runs.append(number)
        return number

    await load(7)
    await load(7)
    await ainvalidate_tags("all", cache=products)
    await load(7)
    assert runs == [7, 7]


def test_a_cached_method_has_tags(products: MLCache) -> None:
    class Shop:
        def __init__(self, pk: int) -> None:
            self.pk = pk
            self.runs = 0

        @cached(products, name="stock", key=lambda shop: shop.pk, tags=lambda shop: [f"shop:{shop.pk}"])
        def stock(self) -> int:
            self.runs += 1
            return self.pk

    shop, other = Shop(1), Shop(2)
    for invalidated in ("shop:1", "shop:1", "unknown"):
        assert (shop.stock(), other.stock()) == (1, 2)
        invalidate_tags(invalidated, cache=products)
    assert (shop.runs, other.runs) == (3, 1)
    assert (shop.stock(), shop.runs) == (1, 3)


@pytest.mark.parametrize("vary", [False, True])
def test_a_cached_view_has_tags(products: MLCache, vary: bool) -> None:
    runs: list[str] = []

    @cache_view(60, products, tags=lambda request, number: (f"product:{number}", "products"))
    def view(request: HttpRequest, number: int) -> HttpResponse:
        runs.append(f"{number} {len(runs)}")
        return HttpResponse(runs[-1], headers={"Vary": "Accept"} if vary else {})

    def page(number: int) -> str:
        return view(RequestFactory().get(f"/{number}/"), number).content.decode()

    assert (page(7), page(8), page(7)) == ("7 0", "8 1", "7 0")
    products.invalidate_tags("product:7")
    assert (page(7), page(8), page(7)) == ("7 2", "8 1", "7 2")
    products.invalidate_tags("products")
    assert (page(8), page(7), page(8)) == ("8 3", "7 4", "8 3")


async def test_a_cached_async_view_has_tags(products: MLCache) -> None:
    runs: list[int] = []

    @cache_view(60, products, tags=("products",))
    async def view(request: HttpRequest) -> HttpResponse:
        runs.append(1)
        return HttpResponse("page")

    for _ in range(3):
        await view(AsyncRequestFactory().get("/"))
    await products.ainvalidate_tags("products")
    await view(AsyncRequestFactory().get("/"))
    assert len(runs) == 2


@pytest.mark.usefixtures("site")
async def test_a_tag_is_invalidated_in_all_caches_of_the_site(shared: Shared) -> None:
    in_code, quiet = MLCache("in code", shared("values")), MLCache("quiet", shared("values"), ipc=None)
    configured = mlcaches["default"]
    for cache in (in_code, configured, quiet):
        cache.get("k", value("old"), tags=("x",))
    invalidate_tags("x")
    assert (in_code.get("k"), configured.get("k")) == (None, None)
    in_code.get("k", value("old"), tags=("x",))
    await ainvalidate_tags("x")
    assert in_code.get("k") is None
    with pytest.raises(NoChannel):
        invalidate_tags("x", cache=quiet)


# --- history ---


async def test_latest_invalidations_are_listed(make: Make, clock: Clock) -> None:
    a = make()
    counter = a.cache.counter
    await a.do("invalidate_tags", "product:7", "shop:3")
    assert {row.tag: row.times for row in run(counter.tags.load())} == {"product:7": 1, "shop:3": 1}
    await a.do("invalidate_tags", "product:7")
    assert {row.tag: row.times for row in run(counter.tags.load())} == {"product:7": 1, "shop:3": 1}, "not yet due"
    counter.due_at = 0
    await a.do("invalidate_tags", "x")
    rows = run(counter.tags.load())
    assert {row.tag: row.times for row in rows} == {"product:7": 2, "shop:3": 1, "x": 1}
    assert rows[-1].tag == "shop:3"
    counter.due_at = 0
    await a.do("invalidate_tags", *(f"tag{number}" for number in range(100)))
    assert len(run(counter.tags.load())) == 50


# --- mistakes ---


WRONG: list[Any] = ["product:7", ("product:7", 7), (b"x",), ("",), ("x" * 201,), ("x",) * 65, 7, {"a": 1}]


def test_wrong_tags(shared: Shared) -> None:
    cache = MLCache("c", shared("values"))
    for tags in WRONG:
        with pytest.raises(BadOption, match=r"^tags must"):
            cache.set("k", 1, tags=tags)
        with pytest.raises(BadOption, match="function passed as tags"):
            cache.get("k", lambda tags=tags: 1, tags=lambda tags=tags: tags)


def test_wrong_calls(shared: Shared) -> None:
    cache = MLCache("c", shared("values"))

    async def later() -> tuple[str]:
        return ("x",)

    with pytest.raises(BadOption, match="must not be a coroutine function"):
        cache.get("k", lambda: 1, tags=later)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match=r"Pass each tag as a str"):
        cache.invalidate_tags(("product:7", "shop:3"))  # type: ignore[arg-type]
    with pytest.raises(NoChannel, match="invalidate_tags"):
        MLCache("c", shared("values"), ipc=None).invalidate_tags("x")
    cache.invalidate_tags()
    assert names.invalidated(("a", "b", "a")) == ("a", "b")
