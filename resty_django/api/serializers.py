"""JSON of the overview, and of all error responses."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ErrorSerializer(serializers.Serializer[Any]):
    """An error: a code, a message, and optional details."""

    code = serializers.CharField(help_text="A stable identifier, for programs.")
    message = serializers.CharField(help_text="A sentence, for people.")
    details = serializers.DictField(required=False, help_text="Optional details, such as `fields` (messages by field).")


class OverviewFigureSerializer(serializers.Serializer[Any]):
    """One number."""

    name = serializers.CharField(help_text="A stable identifier, for programs.")
    label = serializers.CharField()  # type: ignore[assignment]
    value = serializers.FloatField(allow_null=True, help_text="Null if unknown. Shares are from 0 to 1.")
    unit = serializers.ChoiceField(choices=["", "per minute", "share", "bytes", "seconds"], allow_blank=True)
    level = serializers.ChoiceField(choices=["ok", "warning", "error"])
    note = serializers.CharField(allow_blank=True)


class OverviewRowSerializer(serializers.Serializer[Any]):
    """The figures of one thing, such as a queue."""

    subject = serializers.CharField()
    error = serializers.CharField(allow_blank=True, help_text="The reason if figures are missing, else empty.")
    figures = OverviewFigureSerializer(many=True)


class OverviewPanelSerializer(serializers.Serializer[Any]):
    """One component."""

    name = serializers.CharField()
    title = serializers.CharField()
    error = serializers.CharField(allow_blank=True, help_text="The reason if the panel is unavailable, else empty.")
    figures = OverviewFigureSerializer(many=True)
    rows = OverviewRowSerializer(many=True)
    more = serializers.IntegerField(help_text="Number of omitted rows.")
    bars = serializers.ListField(
        child=serializers.FloatField(), help_text="One number per minute, the current minute last."
    )
    notes = serializers.ListField(child=serializers.CharField())


class OverviewSerializer(serializers.Serializer[Any]):
    """The components that the user may see."""

    panels = OverviewPanelSerializer(many=True)
