"""The examples of the docs for Channels, Django Ninja and GraphQL: what they do not show themselves."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from resty_django.limits import Limited, limit_window, limited
from resty_django.limits.websockets import WebSocketLimits
from tests.docs_reader import page

from .websocket_tools import Socket, is_accepted

pytestmark = pytest.mark.usefixtures("empty_limits")


@pytest.fixture
def site() -> dict[str, Any]:
    """The names of the example with Channels."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in page("docs/limits/websockets.md").blocks[:2]:
        exec(compile(block.text, block.place, "exec"), namespace)  # noqa: S102
    return namespace


@pytest.mark.django_db(transaction=True)
def test_channels(site: dict[str, Any]) -> None:
    get_user_model().objects.create_user("ada", password="x")
    browser = Client()
    assert browser.login(username="ada", password="x")
    cookies = SimpleCookie({name: morsel.value for name, morsel in browser.cookies.items()})
    ada = [("Cookie", cookies.output(header="", sep=";").strip())]

    async def talk() -> None:
        application = site["application"]
        async with Socket(application, path="/chat/lobby/", headers=ada) as socket:
            assert await socket.accepted()
            socket.write("one", "two", "three")
            assert [await socket.read(), await socket.read()] == ["ONE", "TWO"]
            assert (await socket.next())["code"] == 1008
        assert await is_accepted(application, path="/chat/lobby/")

        by_user = site["AuthMiddlewareStack"](WebSocketLimits(site["rooms"], new_connections="1/h", key="user"))
        by_session = site["AuthMiddlewareStack"](WebSocketLimits(site["rooms"], new_connections="1/h", key="session"))
        for stack in (by_user, by_session):
            anonymous = {"path": "/chat/garden/"}
            logged_in = {**anonymous, "headers": ada}
            accepted = [await is_accepted(stack, **options) for options in (anonymous, logged_in) * 2]
            assert accepted == [True, True, False, False]

    asyncio.run(talk())


@pytest.mark.parametrize("kind", ["decorated view", "function"])
def test_an_async_operation_of_django_ninja(kind: str) -> None:
    from django.test import AsyncRequestFactory
    from django.urls import path, resolve
    from ninja import NinjaAPI
    from ninja.decorators import decorate_view

    api = NinjaAPI(urls_namespace=kind)
    decorator = limited("2/h", key="all") if kind == "function" else decorate_view(limit_window("2/h", name=kind))

    @api.exception_handler(Limited)
    def refuse(request: Any, error: Limited) -> Any:
        return api.create_response(request, {"detail": str(error)}, status=429)

    async def search(request: Any, text: str) -> dict[str, str]:
        return {"text": text}

    api.get("/search")(decorator(search))
    match = resolve("/search", (path("", api.urls),))

    async def statuses() -> list[int]:
        requests = [AsyncRequestFactory().get("/search?text=a") for _ in range(3)]
        return [(await match.func(request)).status_code for request in requests]

    assert asyncio.run(statuses()) == [200, 200, 429]


def test_the_name_keeps_operations_of_django_ninja_apart() -> None:
    from django.test import RequestFactory
    from django.urls import path, resolve
    from ninja import NinjaAPI
    from ninja.decorators import decorate_view

    api = NinjaAPI(urls_namespace="names")
    for name in ("coffee", "tea"):

        def order(request: Any) -> dict[str, str]:
            return {}

        api.get(f"/{name}")(decorate_view(limit_window("1/h", name=name))(order))
    urls = (path("", api.urls),)

    def status(name: str) -> int:
        return int(resolve(f"/{name}", urls).func(RequestFactory().get(f"/{name}")).status_code)

    assert [status(name) for name in ("coffee", "tea", "coffee", "tea")] == [200, 200, 429, 429]


def test_an_async_resolver_of_graphql() -> None:
    import strawberry

    @strawberry.type
    class Query:
        @strawberry.field
        @limited("2/h", key=lambda root, **arguments: arguments["word"])
        async def translate(root, word: str) -> str | None:
            return word[::-1]

    schema = strawberry.Schema(Query)

    words = {"a": "tea", "b": "tea", "c": "tea", "d": "no"}
    query = " ".join(f'{name}: translate(word: "{word}")' for name, word in words.items())

    async def ask() -> Any:
        return await schema.execute(f"{{ {query} }}")

    result = asyncio.run(ask())
    assert sorted(str(value) for value in result.data.values()) == ["None", "aet", "aet", "on"]
    assert isinstance(result.errors[0].original_error, Limited)
