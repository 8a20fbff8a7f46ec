"""Methods of views that declare their serializers, for validation and for the OpenAPI document."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

Serializer = type[BaseSerializer[Any]]


@dataclass(frozen=True)
class Endpoint:
    """Decorator for a method of a view, which gets the validated parameters and fields as `query` and `body`.

        @Endpoint(JobsSerializer, query=JobsQuerySerializer)
        def get(self, request: Request, query: dict[str, Any]) -> Response: ...

    `reply`: None for the serializer that drf-spectacular finds. `headers`: descriptions of request headers by name.
    """

    reply: Serializer | None = None
    query: Serializer | None = None
    body: Serializer | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, method: Callable[..., Response]) -> Callable[..., Response]:
        @functools.wraps(method)
        def validated(view: Any, request: Request, *names: str, **arguments: Any) -> Response:
            if self.query is not None:
                arguments["query"] = checked(self.query(data=request.query_params))
            if self.body is not None:
                arguments["body"] = checked(self.body(data=request.data))
            return method(view, request, *names, **arguments)

        vars(validated)["endpoint"] = self
        return validated


def checked(serializer: BaseSerializer[Any]) -> dict[str, Any]:
    """Return the validated data of a serializer. Raise `ValidationError`."""
    serializer.is_valid(raise_exception=True)
    validated: dict[str, Any] = serializer.validated_data
    return validated
