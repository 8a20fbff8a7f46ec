"""Serializers for the requests and responses of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from resty_django.api.fields import (
    STRICT_FIELDS,
    KnownFieldsOnly,
    StrictBooleanField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
)
from resty_django.conf import conf

from ..engine.rule import MAX_NAME_LENGTH, MAX_NUMBER, MAX_SALT
from ..models import RULE_FIELDS, IdCounter, IdRule

NAME_SCHEMA = {"maxLength": MAX_NAME_LENGTH, "pattern": r"^[^\u0000-\u0023%&'<>]*$"}
"""An application name, limited to ASCII, as a regular expression."""


def _text(help_text: str | None = None) -> StrictCharField:
    return StrictCharField(required=False, allow_blank=True, default="", help_text=help_text)


class IdRequestSerializer(KnownFieldsOnly):
    """A request for IDs."""

    app = _text("Application name; each has its own counter.")
    salt = _text("Passed to rules that show a salt.")
    count = StrictIntegerField(
        required=False, default=1, help_text="The number of IDs, from 1 to the site's MAX_COUNT."
    )

    @classmethod
    def openapi(cls) -> Mapping[str, Mapping[str, object]]:
        return {"app": NAME_SCHEMA, "count": {"minimum": 1, "maximum": conf.ids.max_count}}


class IdsSerializer(serializers.Serializer[object]):
    """The issued IDs, as many as requested."""

    ids = serializers.ListField(child=serializers.CharField())
    count = serializers.IntegerField()


class IdPositionSerializer(serializers.Serializer[object]):
    """The position of a counter."""

    counter = serializers.IntegerField(
        help_text="The last number issued by this process, else the last number reserved by any process."
    )
    node_offset = serializers.IntegerField()


class AppQuerySerializer(serializers.Serializer[object]):
    app = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="Application name; empty by default."
    )


class CounterQuerySerializer(AppQuerySerializer):
    app = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="Only counters with this application name."
    )
    rule = serializers.CharField(
        required=False, trim_whitespace=False, help_text="Only counters of the rule with this name."
    )


class ConfirmQuerySerializer(serializers.Serializer[object]):
    confirm_risks = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="`true`: delete the rule even if it has counters."
    )


class IdCounterSerializer(serializers.ModelSerializer[IdCounter]):
    """A stored counter. `bound` is the next unreserved number."""

    rule = serializers.CharField(source="rule.name", read_only=True)

    class Meta:
        model = IdCounter
        fields: ClassVar = [
            "rule",
            "app_name",
            "node_offset",
            "step",
            "bound",
            "cycle_began",
            "created_at",
            "updated_at",
        ]
        read_only_fields: ClassVar = fields


class _RuleFields(KnownFieldsOnly, serializers.ModelSerializer[IdRule]):
    serializer_field_mapping = STRICT_FIELDS
    serializer_choice_field = StrictChoiceField

    @classmethod
    def openapi(cls) -> Mapping[str, Mapping[str, object]]:
        return {
            "name": {**NAME_SCHEMA, "minLength": 1},
            "source": {"minLength": 1},
            "min_counter": {"minimum": 0, "maximum": MAX_NUMBER - 1},
            "max_counter": {"minimum": 1, "maximum": MAX_NUMBER},
            "reset_seconds": {"minimum": 0},
            "segment_size": {"minimum": 1},
            "salt_length": {"minimum": 0, "maximum": MAX_SALT},
        }


class IdRuleSerializer(_RuleFields):
    """A rule. The serializer checks types; the model validates the rule, see `rules`."""

    url = serializers.HyperlinkedIdentityField(
        view_name="resty_ids_api:rule", lookup_field="name", help_text="The URL of the rule."
    )
    confirm_risks = StrictBooleanField(
        write_only=True,
        required=False,
        default=False,
        help_text="Make the change even if earlier IDs could be issued again.",
    )

    class Meta:
        model = IdRule
        fields: ClassVar = ["url", *RULE_FIELDS, "version", "created_at", "updated_at", "confirm_risks"]
        read_only_fields: ClassVar = ["version", "created_at", "updated_at"]
        # `rules` checks that the name is unique, in the database of the ID service.
        extra_kwargs: ClassVar[dict[str, Any]] = {"name": {"validators": []}}


class IdRuleDraftSerializer(_RuleFields):
    """Fields of a rule to preview before they are saved."""

    class Meta:
        model = IdRule
        fields: ClassVar = [name for name in RULE_FIELDS if name != "name"]


class IdPreviewSerializer(KnownFieldsOnly):
    """A request for a preview of the next IDs."""

    app = _text()
    salt = _text("If empty, a salt is generated where the rule needs one.")
    count = StrictIntegerField(required=False, default=3, min_value=1, max_value=20)
    draft = IdRuleDraftSerializer(required=False, partial=True, help_text="Unsaved changes to the rule.")

    @classmethod
    def openapi(cls) -> Mapping[str, Mapping[str, object]]:
        return {"app": NAME_SCHEMA}


class IdPreviewedSerializer(serializers.Serializer[object]):
    """The next IDs, or the error that prevents them, with warnings and notes about the rule."""

    ids = serializers.ListField(child=serializers.CharField())
    error = serializers.CharField(allow_blank=True, help_text="The reason if no ID can be shown, else empty.")
    warnings = serializers.ListField(child=serializers.CharField(), help_text="Ways in which IDs could be equal.")
    notes = serializers.ListField(child=serializers.CharField())
