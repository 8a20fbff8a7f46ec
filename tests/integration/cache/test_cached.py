"""`@cached`: functions, methods, static and class methods, sync and async, over both engines."""

from __future__ import annotations

import copy
import enum
import inspect
import pickle
from functools import partial
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.functional import cached_property
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from resty_django.cache import (
    LRU,
    BadOption,
    Fresh,
    MLCache,
    UnknownCache,
    cached,
    mlcaches,
)
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Shared
from tests.integration.cache.tools import Hub

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def site(site: Any) -> Any:
    mlcaches["default"].lru.flush_all()  # of an earlier test, where it still lives
    return site


@pytest.fixture
def cache(shared: Shared, clock: Clock) -> MLCache:
    return MLCache("c", shared("values"), lru=LRU(100, clock), clock=clock, ipc=Hub().channel("A"))


@cached(ttl=60)
def load(number: int, language: str = "en", *, full: bool = False) -> str:
    """Load it."""
    calls.append((number, language, full))
    return f"{number} {language} {full}"


@cached(ttl=60)
async def aload(number: int, language: str = "en") -> str:
    calls.append((number, language))
    return f"{number} {language}"


class Colour(enum.Enum):
    RED = 1

    @cached()
    def shown(self) -> str:
        calls.append(self)
        return self.name


class Product:
    def __init__(self, pk: int) -> None:
        self.pk = pk

    @cached(by="pk")
    def price(self, currency: str = "EUR") -> str:
        calls.append(self.pk)
        return f"{self.pk} {currency}"

    @cached(by=lambda self: self.pk)
    async def aprice(self, currency: str = "EUR") -> str:
        calls.append(self.pk)
        return f"{self.pk} {currency}"

    @cached(by=type)
    def table(self) -> list[str]:
        calls.append(self.pk)
        return [type(self).__name__]

    @cached(key=lambda self, number: (self.pk, number % 10))
    def digit(self, number: int) -> int:
        calls.append(number)
        return number % 10

    @cached()
    @staticmethod
    def static(number: int) -> int:
        calls.append(number)
        return number * 2

    @cached()
    @classmethod
    def made(cls, number: int) -> str:
        calls.append(number)
        return f"{cls.__name__} {number}"

    @cached()
    def without(self) -> int:
        return self.pk


class Tea(Product):
    pass


# --- functions ---


def test_a_result_is_cached_by_its_bound_arguments(site: Any) -> None:
    assert load(7) == load(7, "en") == load(number=7) == load(7, full=False, language="en") == "7 en False"
    assert calls == [(7, "en", False)]
    assert load(8) == "8 en False"
    assert load(7, "de") == "7 de False"
    assert len(calls) == 3


def test_attributes_of_the_function() -> None:
    assert load.__name__ == "load"
    assert load.__doc__ == "Load it."
    assert list(inspect.signature(load).parameters) == ["number", "language", "full"]
    assert load.__wrapped__(1) == "1 en False"
    assert pickle.loads(pickle.dumps(load)) is load  # noqa: S301
    assert copy.deepcopy(load) is load
    assert not iscoroutinefunction(load)
    assert iscoroutinefunction(aload)


def test_a_key_holds_the_arguments_or_their_hash(site: Any) -> None:
    begin = f"{__name__}.load"
    assert load.key(7) == f"{begin}(7, 'en', False)"
    long = load.key(7, "x" * 500)
    assert long.startswith(f"{begin}#")
    assert load(7, "x" * 500) == load(7, "x" * 500)
    assert len(calls) == 1
    assert load.peek(7, "x" * 500) is not None


def test_the_options_of_the_cache_apply(cache: MLCache, clock: Clock) -> None:
    @cached(cache, name="f", ttl=10, neg_ttl=1)
    def f(value: Any) -> Any:
        calls.append(value)
        return value

    f(1)
    f(None)
    clock.advance(2)
    f(1)
    f(None)
    assert calls == [1, None, None]
    clock.advance(10)
    f(1)
    assert calls == [1, None, None, 1]


def test_fresh_sets_another_time_to_live(cache: MLCache, clock: Clock) -> None:
    @cached(cache, name="f", ttl=10)
    def f(ttl: float) -> Any:
        calls.append(ttl)
        return Fresh("value", ttl)

    for ttl in (100, -1):
        assert f(ttl) == f.refresh(ttl) == "value"
    clock.advance(50)
    assert f(100) == f(-1) == "value"
    assert calls == [100, 100, -1, -1, -1]


def test_invalidate_refresh_and_peek(cache: MLCache, clock: Clock) -> None:
    @cached(cache, name="f", ttl=10)
    def f(number: int) -> int:
        calls.append(number)
        return len(calls)

    assert f.peek(7) is None
    assert f(7) == 1
    peek = f.peek(number=7)
    assert peek is not None
    assert (peek.value, round(peek.ttl)) == (1, 10)
    f.invalidate(7)
    assert f(7) == 2
    clock.advance(9)
    assert f.refresh(7) == 3
    clock.advance(9)
    assert f(7) == 3


def test_a_refresh_that_fails_leaves_the_old_value(cache: MLCache) -> None:
    down = False

    @cached(cache, name="f")
    def f() -> str:
        if down:
            raise LookupError("gone")
        return "old"

    f()
    down = True
    with pytest.raises(LookupError, match="gone"):
        f.refresh()
    assert f() == "old"


def test_errors_of_the_function_are_raised_unchanged(cache: MLCache) -> None:
    @cached(cache, name="f")
    def f() -> None:
        calls.append(1)
        raise LookupError("gone")

    for _ in range(2):
        with pytest.raises(LookupError, match="gone") as caught:
            f()
        assert caught.value.__context__ is None
    assert len(calls) == 2


def test_a_function_that_calls_itself(cache: MLCache) -> None:
    @cached(cache, name="fibonacci")
    def fibonacci(n: int) -> int:
        calls.append(n)
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(20) == 6765
    assert len(calls) == 21


def test_the_cache_is_looked_up_when_it_is_used(site: Any) -> None:
    load(7)
    assert mlcaches["default"].peek(load.key(7)) is not None
    missing = cached("missing", name="f")(lambda: 1)
    with pytest.raises(UnknownCache, match="missing"):
        missing()
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"missing": {}}}
    assert missing() == 1


@cached(name="text_of")
def text_of(text: Any) -> str:
    calls.append(f"{text}")
    return conditional_escape(text)


def test_safe_and_lazy_texts_are_arguments(site: Any) -> None:
    calls.clear()
    assert text_of(SafeString("news")) == text_of("news") == text_of(gettext_lazy("news")) == "news"
    assert calls == ["news"]
    assert text_of(SafeString("<b>")) == "<b>"
    assert text_of("<b>") == "&lt;b&gt;"  # never the result of the safe text
    assert calls == ["news", "<b>", "<b>"]


# --- errors ---


def test_arguments_that_cannot_be_in_a_key(site: Any) -> None:
    with pytest.raises(TypeError, match="'language'"):
        load(7, ["en"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'number'"):
        load()  # type: ignore[call-arg]
    assert calls == []


def test_wrong_options() -> None:
    with pytest.raises(BadOption, match="tll is not an option"):
        cached(tll=5)
    with pytest.raises(BadOption, match="with parentheses"):
        cached(lambda: 1)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="by and key"):
        cached(by="pk", key=lambda self: 1)
    with pytest.raises(BadOption, match="has no unique name"):
        cached()(lambda: 1)
    with pytest.raises(BadOption, match="no self"):
        cached(by="pk", name="f")(lambda: 1)


# --- methods ---


def test_methods_by_an_attribute(site: Any) -> None:
    assert Product(1).price() == Product(1).price(currency="EUR") == "1 EUR"
    assert Product(2).price() == "2 EUR"
    assert calls == [1, 2]
    assert Product.price(Product(1)) == "1 EUR"
    assert Tea(1).price() == "1 EUR"
    assert calls == [1, 2, 1], "objects of another class are other objects"


def test_the_calls_of_a_method_know_their_object(site: Any) -> None:
    product = Product(1)
    product.price("EUR")
    peek = product.price.peek("EUR")
    assert peek is not None
    assert peek.value == "1 EUR"
    assert product.price.key() == f"{__name__}.Product.price('{__name__}.Product', 1, 'EUR')"
    Product(1).price.invalidate()
    assert product.price.peek() is None
    assert product.price.refresh() == "1 EUR"
    assert calls == [1, 1]
    assert product.price.__name__ == "price"


def test_methods_by_their_class(site: Any) -> None:
    assert Product(1).table() == Product(2).table() == ["Product"]
    assert Tea(3).table() == ["Tea"]
    assert calls == [1, 3]


def test_methods_by_a_function_of_all_arguments(site: Any) -> None:
    assert Product(1).digit(7) == Product(1).digit(17) == 7
    assert Product(2).digit(7) == 7
    assert calls == [7, 7]
    Product(1).digit.invalidate(27)
    assert Product(1).digit(37) == 7
    assert calls == [7, 7, 37]


def test_static_and_class_methods(site: Any) -> None:
    assert Product.static(2) == Product(1).static(2) == Tea.static(2) == 4
    assert Product.made(2) == Product(9).made(2) == "Product 2"
    assert Tea.made(2) == "Tea 2"
    assert calls == [2, 2, 2]
    Product.static.invalidate(2)
    Tea.made.invalidate(2)
    assert (Product.static.peek(2), Tea.made.peek(2)) == (None, None)
    assert Product.made.peek(2) is not None


def test_an_enum_identifies_itself(site: Any) -> None:
    assert Colour.RED.shown() == Colour.RED.shown() == "RED"
    assert calls == [Colour.RED]


def test_a_self_without_an_identity(site: Any) -> None:
    with pytest.raises(TypeError, match=r"'self'.*by="):
        Product(1).without()


def test_it_stacks_with_other_decorators(site: Any) -> None:
    class Shop:
        pk = 1

        @cached_property
        def names(self) -> list[str]:
            return self.found()

        @cached(name="found", key=lambda self: self.pk)
        def found(self) -> list[str]:
            calls.append(1)
            return ["tea"]

    assert Shop().names == Shop().names == ["tea"]
    assert len(calls) == 1

    @require_GET
    @cached(name="body", key=lambda request: request.path, l1_serializer=HttpResponse)
    def view(request: HttpRequest) -> Any:
        calls.append(request.path)
        return "body"

    requests = RequestFactory()
    assert view(requests.get("/a")).content == view(requests.get("/a")).content == b"body"
    assert view(requests.post("/a")).status_code == 405
    assert calls == [1, "/a"]


# --- asyncio ---


async def test_coroutine_functions_are_cached(site: Any) -> None:
    assert await aload(7) == await aload(number=7) == "7 en"
    assert calls == [(7, "en")]
    await aload.ainvalidate(7)
    assert await aload.apeek(7) is None
    assert await aload.arefresh(7) == "7 en"
    peek = await aload.apeek(7)
    assert peek is not None
    assert peek.value == "7 en"
    assert len(calls) == 2


async def test_async_methods_are_cached(site: Any) -> None:
    product = Product(1)
    assert await product.aprice() == await Product(1).aprice("EUR") == "1 EUR"
    await product.aprice.ainvalidate()
    assert await product.aprice.arefresh() == "1 EUR"
    assert calls == [1, 1]
    assert iscoroutinefunction(product.aprice)
    assert not iscoroutinefunction(product.price)


async def test_errors_of_a_coroutine_function_are_raised_unchanged(site: Any) -> None:
    @cached(name="f")
    async def f() -> None:
        raise LookupError("gone")

    for call in (f, f.arefresh):
        with pytest.raises(LookupError, match="gone"):
            await call()


async def test_the_twins_of_a_plain_function(site: Any) -> None:
    assert await load.arefresh(7) == "7 en False"
    await load.ainvalidate(7)
    assert await load.apeek(7) is None


def test_a_coroutine_function_from_sync_code(site: Any) -> None:
    assert aload.refresh(7) == "7 en"
    aload.invalidate(7)
    assert aload.peek(7) is None


async def test_objects_without_an_identity_are_refused() -> None:
    """All of them would share one result."""
    calls.clear()
    unsaved = Product(None)  # type: ignore[arg-type]
    for call in (unsaved.price, unsaved.price.key, unsaved.price.invalidate):
        with pytest.raises(ValueError, match="by='pk'"):
            call()
    with pytest.raises(ValueError, match="Save the object first"):
        await unsaved.aprice()
    assert calls == []
    assert unsaved.table() == ["Product"]


def test_generators_are_refused() -> None:
    def items() -> Any:
        yield 1

    async def aitems() -> Any:
        yield 1

    for function in (items, aitems):
        with pytest.raises(BadOption, match=r"items\(\)"):
            cached(name="items")(function)
    for function in (partial(int, "1"), lambda: 1):
        for name in (None, ""):
            with pytest.raises(BadOption, match="has no unique name"):
                cached(name=name)(function)
