"""The OpenAPI document of the views, which drf-spectacular makes from their serializers and docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework import serializers
from rest_framework.schemas import DefaultSchema
from rest_framework.schemas.inspectors import ViewInspector
from rest_framework.settings import api_settings

from .endpoints import Endpoint
from .fields import KnownFieldsOnly

if TYPE_CHECKING:
    from drf_spectacular.openapi import AutoSchema
else:
    AutoSchema = object


class ErrorSerializer(serializers.Serializer[object]):
    """An error: a code, a message, and optional details."""

    code = serializers.CharField(help_text="A stable identifier, for programs.")
    message = serializers.CharField(help_text="A sentence, for people.")
    details = serializers.DictField(required=False, help_text="Optional details, such as `fields` (messages by field).")


class EndpointSchema(AutoSchema):
    """Describes a method of a view by its `Endpoint`, or else by the view's `serializer_class`."""

    @property
    def endpoint(self) -> Endpoint:
        method = getattr(self.view, getattr(self.view, "action", self.method.lower()))
        declared: Endpoint = getattr(method, "endpoint", Endpoint())
        return declared

    def get_override_parameters(self) -> list[Any]:
        import uritemplate
        from drf_spectacular.utils import OpenApiParameter

        text = "Escape it twice if it contains characters other than letters, digits, - and _."
        names = [OpenApiParameter(name, location="path", description=text) for name in uritemplate.variables(self.path)]
        headers = [
            OpenApiParameter(name, location="header", description=text) for name, text in self.endpoint.headers.items()
        ]
        return [*names, *headers, *filter(None, [self.endpoint.query])]

    def get_operation_id(self) -> str:
        operation_id = super().get_operation_id()
        return operation_id if "{" in self.path else operation_id.replace("retrieve", "list")

    def get_summary(self) -> str:
        return self.get_description().partition("\n")[0].rstrip(".")

    def get_request_serializer(self) -> Any:
        endpoint = self.endpoint
        return endpoint.body if endpoint.body or endpoint.reply else super().get_request_serializer()

    def get_response_serializers(self) -> Any:
        endpoint = self.endpoint
        return {endpoint.status: endpoint.reply} if endpoint.reply else super().get_response_serializers()

    def _get_response_bodies(self, *args: Any) -> dict[str, Any]:
        error = self._get_response_for_code(ErrorSerializer, "400") | {"description": "An error."}  # type: ignore[no-untyped-call]
        return {**super()._get_response_bodies(*args), "4XX": error, "5XX": error}

    def _map_serializer(self, serializer: Any, *args: Any, **options: Any) -> Any:
        schema = super()._map_serializer(serializer, *args, **options)  # type: ignore[no-untyped-call]
        if isinstance(serializer, KnownFieldsOnly):
            for name, keywords in serializer.openapi().items():
                if name in schema.get("properties", {}):
                    schema["properties"][name].update(keywords)
            schema["additionalProperties"] = False
        return schema


def view_schema() -> ViewInspector:
    """Return the schema of the site's DEFAULT_SCHEMA_CLASS, with `EndpointSchema` if it is drf-spectacular's."""
    site_class: Any = api_settings.DEFAULT_SCHEMA_CLASS
    if not hasattr(site_class, "get_override_parameters"):
        return DefaultSchema()
    schema: ViewInspector = type("SiteSchema", (EndpointSchema, site_class), {})()
    return schema
