"""Fields that take their JSON type alone: "5" is no number, 5 no text, true neither."""

from __future__ import annotations

from typing import Any

from django.db import models
from rest_framework import serializers


class StrictIntegerField(serializers.IntegerField):
    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictCharField(serializers.CharField):
    """Text as it was sent, outer spaces included."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class StrictChoiceField(serializers.ChoiceField):
    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return super().to_internal_value(data)


class KnownFieldsOnly(serializers.Serializer[Any]):
    """A misspelt field is an error, not a field left out."""

    def to_internal_value(self, data: Any) -> Any:
        found = super().to_internal_value(data)
        unknown = [name for name in data if name not in self.fields]
        if unknown:
            known = ", ".join(name for name, field in self.fields.items() if not field.read_only)
            raise serializers.ValidationError(
                {name: [f"There is no such field; there are {known}."] for name in unknown}
            )
        return found


STRICT_FIELDS: dict[type[models.Field[Any, Any]], type[serializers.Field[Any, Any, Any, Any]]] = {
    **serializers.ModelSerializer.serializer_field_mapping,
    models.BigIntegerField: StrictIntegerField,
    models.PositiveIntegerField: StrictIntegerField,
    models.PositiveSmallIntegerField: StrictIntegerField,
    models.BooleanField: StrictBooleanField,
    models.CharField: StrictCharField,
    models.TextField: StrictCharField,
}
