"""OpenAPI descriptions for drf-spectacular; they have no effect if it is not installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

spectacular: Any
try:
    from drf_spectacular import utils as spectacular
except ImportError:
    spectacular = None

if spectacular is not None:
    from drf_spectacular.extensions import OpenApiSerializerExtension

    class KnownFieldsOnlyExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]
        """Describes serializers that reject unknown fields; drf-spectacular finds this class automatically."""

        target_class = "resty_django.api.fields.KnownFieldsOnly"
        match_subclasses = True

        def map_serializer(self, auto_schema: Any, direction: Any) -> Any:
            schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
            for name, keywords in self.target.openapi().items():
                if name in schema.get("properties", {}):
                    schema["properties"][name].update(keywords)
            schema["additionalProperties"] = False
            return schema


View = TypeVar("View", bound=Callable[..., Any])
Decorator = Callable[[View], View]
Examples: TypeAlias = dict[int, tuple[str, dict[str, dict[str, Any]]]]
"""Error responses by status: a description, and by code the other fields of the body."""

REQUEST_ERRORS: Examples = {
    400: (
        "A parameter or a field is invalid.",
        {
            "bad_request": {
                "message": "The request is invalid: count: A valid integer is required.",
                "details": {"fields": {"count": ["A valid integer is required."]}},
            }
        },
    ),
    401: (
        "The client is not authenticated (403 if the site's first authentication class has no challenge).",
        {"not_authenticated": {"message": "Authentication credentials were not provided."}},
    ),
    403: (
        "The user lacks the permission.",
        {"permission_denied": {"message": "You do not have permission to perform this action."}},
    ),
}


def describe(**arguments: Any) -> Decorator[Any]:
    """Call `extend_schema` if drf-spectacular is installed."""
    if spectacular is None:
        return lambda view: view
    decorator: Decorator[Any] = spectacular.extend_schema(**arguments)
    return decorator


def describe_all(**methods: Any) -> Decorator[Any]:
    """Call `extend_schema_view` with decorators of `describe` if drf-spectacular is installed."""
    if spectacular is None:
        return lambda view: view
    decorator: Decorator[Any] = spectacular.extend_schema_view(**methods)
    return decorator


def responses(successes: Mapping[int, Any], errors: Examples, serializer: type) -> dict[int, Any]:
    """Return the responses of a URL by status: the successful ones, then errors in the format of `serializer`."""
    responses_by_status = dict(successes)
    if spectacular is None:
        return responses_by_status
    for status, (text, examples) in sorted(errors.items()):
        responses_by_status[status] = spectacular.OpenApiResponse(
            serializer,
            description=text,
            examples=[
                spectacular.OpenApiExample(code, value={"code": code, **fields}) for code, fields in examples.items()
            ],
        )
    return responses_by_status


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
