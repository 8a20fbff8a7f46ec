"""The serializers: requests and responses of the API."""

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

MAX_PREVIEW = 20

NAME = {"maxLength": MAX_NAME_LENGTH, "pattern": r"^[^\u0000-\u0023%&'<>]*$"}
"""An application name, and the ASCII part of what it may hold."""
RULE: Mapping[str, Mapping[str, Any]] = {
    "name": {**NAME, "minLength": 1},
    "source": {"minLength": 1},
    "min_counter": {"minimum": 0, "maximum": MAX_NUMBER - 1},
    "max_counter": {"minimum": 1, "maximum": MAX_NUMBER},
    "reset_seconds": {"minimum": 0},
    "segment_size": {"minimum": 1},
    "salt_length": {"minimum": 0, "maximum": MAX_SALT},
}


class IdErrorSerializer(serializers.Serializer[Any]):
    """An error: a stable word, a sentence, and perhaps more."""

    code = serializers.CharField(help_text="A stable word, for programs.")
    message = serializers.CharField(help_text="A sentence, for people.")
    details = serializers.DictField(
        required=False,
        help_text="Perhaps `fields` (messages by field), `position` (index of the first wrong character of a rule's "
        "source), `risks` (sentences to confirm) or `until` (epoch seconds when an exhausted counter starts again).",
    )


class IdRequestSerializer(KnownFieldsOnly):
    """A request for IDs."""

    app = StrictCharField(
        required=False, allow_blank=True, default="", help_text="Application name, the counter's own."
    )
    salt = StrictCharField(required=False, allow_blank=True, default="", help_text="Handed to rules that show a salt.")
    count = StrictIntegerField(required=False, default=1, help_text="How many IDs, from 1 to the site's MAX_COUNT.")

    @classmethod
    def openapi(cls) -> Mapping[str, Mapping[str, Any]]:
        return {"app": NAME, "count": {"minimum": 1, "maximum": conf.ids.max_count}}


class IdsSerializer(serializers.Serializer[Any]):
    """The IDs given out: all that were asked for."""

    ids = serializers.ListField(child=serializers.CharField())
    count = serializers.IntegerField()


class IdPositionSerializer(serializers.Serializer[Any]):
    """Where a counter stands."""

    counter = serializers.IntegerField(help_text="The last number given out here, or else reserved by anybody.")
    node_offset = serializers.IntegerField()


class AppQuerySerializer(serializers.Serializer[Any]):
    app = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="Application name; empty when left out."
    )


class CounterQuerySerializer(AppQuerySerializer):
    app = serializers.CharField(
        required=False, allow_blank=True, trim_whitespace=False, help_text="Only counters of this application name."
    )
    rule = serializers.CharField(
        required=False, trim_whitespace=False, help_text="Only counters of this rule, by its name."
    )


class IdCounterSerializer(serializers.ModelSerializer[IdCounter]):
    """A stored counter. `bound` is the next number that nobody reserved."""

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
    def openapi(cls) -> Mapping[str, Mapping[str, Any]]:
        return RULE


class IdRuleSerializer(_RuleFields):
    """A rule. Types are checked here; whether the rule makes sense is checked by the model, see `rules`."""

    url = serializers.HyperlinkedIdentityField(
        view_name="resty_ids_api:rule", lookup_field="name", help_text="The rule's own address."
    )
    confirm_risks = StrictBooleanField(
        write_only=True,
        required=False,
        default=False,
        help_text="Make the change although IDs of the past could come again.",
    )

    class Meta:
        model = IdRule
        fields: ClassVar = ["url", *RULE_FIELDS, "version", "created_at", "updated_at", "confirm_risks"]
        read_only_fields: ClassVar = ["version", "created_at", "updated_at"]
        # Whether the name is taken is asked in the database of the ID service, see `rules`.
        extra_kwargs: ClassVar[dict[str, Any]] = {"name": {"validators": []}}


class IdRuleDraftSerializer(_RuleFields):
    """Fields of a rule to try out before they are saved."""

    class Meta:
        model = IdRule
        fields: ClassVar = [name for name in RULE_FIELDS if name != "name"]


class IdPreviewSerializer(KnownFieldsOnly):
    """A request for a look at the next IDs."""

    app = StrictCharField(required=False, allow_blank=True, default="")
    salt = StrictCharField(required=False, allow_blank=True, default="", help_text="Made up where it is empty.")
    count = StrictIntegerField(required=False, default=3, min_value=1, max_value=MAX_PREVIEW)
    draft = IdRuleDraftSerializer(required=False, partial=True, help_text="Changes to the rule that are not saved yet.")

    @classmethod
    def openapi(cls) -> Mapping[str, Mapping[str, Any]]:
        return {"app": NAME}


class IdPreviewedSerializer(serializers.Serializer[Any]):
    """The next IDs, or the sentence that says why there are none; and what to know about the rule."""

    ids = serializers.ListField(child=serializers.CharField())
    error = serializers.CharField(allow_blank=True, help_text="Why there are none; empty when there are.")
    warnings = serializers.ListField(child=serializers.CharField(), help_text="Ways in which IDs could be equal.")
    notes = serializers.ListField(child=serializers.CharField())
