"""Serializer fields that accept only their own JSON type: "5" is not a number, 5 is not a string, true is neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models
from rest_framework import serializers


class StrictIntegerField(serializers.IntegerField):
    def to_internal_value(self, data: object) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictCharField(serializers.CharField):
    """Text as it was sent, including surrounding spaces."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **kwargs})

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class StrictChoiceField(serializers.ChoiceField):
    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return super().to_internal_value(data)


class KnownFieldsOnly(serializers.Serializer[Any]):
    """A serializer that rejects unknown fields, so that a misspelt field is an error.

    The OpenAPI document says so too, with the keywords of `openapi` for fields that are validated elsewhere.
    """

    @classmethod
    def openapi(cls) -> Mapping[str, Mapping[str, object]]:
        """Return JSON Schema keywords by field."""
        return {}

    def to_internal_value(self, data: Any) -> Any:
        validated = super().to_internal_value(data)
        unknown = [name for name in data if name not in self.fields]
        if unknown:
            known_names = ", ".join(name for name, field in self.fields.items() if not field.read_only)
            raise serializers.ValidationError(
                {name: [f"Unknown field. Known fields: {known_names}."] for name in unknown}
            )
        return validated


STRICT_FIELDS: dict[type[models.Field[Any, Any]], type[serializers.Field[Any, Any, Any, Any]]] = {
    **serializers.ModelSerializer.serializer_field_mapping,
    models.BigIntegerField: StrictIntegerField,
    models.PositiveIntegerField: StrictIntegerField,
    models.PositiveSmallIntegerField: StrictIntegerField,
    models.BooleanField: StrictBooleanField,
    models.CharField: StrictCharField,
    models.TextField: StrictCharField,
}
