"""Descriptions that drf-spectacular makes the OpenAPI schema of; without it, nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

spectacular: Any
try:
    from drf_spectacular import utils as spectacular
except ImportError:
    spectacular = None

View = TypeVar("View", bound=Callable[..., Any])
Decorator = Callable[[View], View]
Examples: TypeAlias = dict[int, tuple[str, dict[str, dict[str, Any]]]]
"""Errors by status: a sentence, and by code what the body has besides it."""

REQUEST_ERRORS: Examples = {
    400: (
        "A parameter or a field is wrong.",
        {
            "bad_request": {
                "message": "The request is not valid: count: A valid integer is required.",
                "details": {"fields": {"count": ["A valid integer is required."]}},
            }
        },
    ),
    401: (
        "Who asks is not known (403 where the site's first way to authenticate has no challenge).",
        {"not_authenticated": {"message": "Authentication credentials were not provided."}},
    ),
    403: (
        "The user lacks the permission.",
        {"permission_denied": {"message": "You do not have permission to perform this action."}},
    ),
}


def describe(**arguments: Any) -> Decorator[Any]:
    """`extend_schema`, where drf-spectacular is installed."""
    if spectacular is None:
        return lambda view: view
    made: Decorator[Any] = spectacular.extend_schema(**arguments)
    return made


def describe_all(**methods: Any) -> Decorator[Any]:
    """`extend_schema_view` of decorators made with `describe`, where drf-spectacular is installed."""
    if spectacular is None:
        return lambda view: view
    made: Decorator[Any] = spectacular.extend_schema_view(**methods)
    return made


def responses(good: Mapping[int, Any], errors: Examples, serializer: type) -> dict[int, Any]:
    """The responses of an address: the good ones, and errors of the shape of `serializer`, in their order."""
    found = dict(good)
    if spectacular is None:
        return found
    for status, (text, examples) in sorted(errors.items()):
        found[status] = spectacular.OpenApiResponse(
            serializer,
            description=text,
            examples=[
                spectacular.OpenApiExample(code, value={"code": code, **rest}) for code, rest in examples.items()
            ],
        )
    return found


def request_example(name: str, value: dict[str, Any]) -> list[Any]:
    return [] if spectacular is None else [spectacular.OpenApiExample(name, value=value, request_only=True)]


def response_example(name: str, value: Any) -> list[Any]:
    if spectacular is None:
        return []
    return [spectacular.OpenApiExample(name, value=value, response_only=True, status_codes=["200", "201"])]


def path_parameter(name: str, text: str) -> list[Any]:
    if spectacular is None:
        return []
    return [spectacular.OpenApiParameter(name, str, spectacular.OpenApiParameter.PATH, description=text)]
