"""The examples of the docs for Django Ninja and GraphQL: what they do not show themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from resty_django.limits import Limited, limit_window, limited

pytestmark = pytest.mark.usefixtures("empty_limits")


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
