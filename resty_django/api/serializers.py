"""JSON of the overview, and of all error responses."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ErrorSerializer(serializers.Serializer[Any]):
    """An error: a stable word, a sentence, and perhaps more."""

    code = serializers.CharField(help_text="A stable word, for programs.")
    message = serializers.CharField(help_text="A sentence, for people.")
    details = serializers.DictField(required=False, help_text="Perhaps `fields` (messages by field), or more.")


class OverviewFigureSerializer(serializers.Serializer[Any]):
    """One number."""

    name = serializers.CharField(help_text="A stable word, for programs.")
    label = serializers.CharField()  # type: ignore[assignment]
    value = serializers.FloatField(allow_null=True, help_text="Null where it is not known. A share is 0 to 1.")
    unit = serializers.ChoiceField(choices=["", "per minute", "share", "bytes", "seconds"], allow_blank=True)
    level = serializers.ChoiceField(choices=["ok", "warning", "error"])
    note = serializers.CharField(allow_blank=True)


class OverviewRowSerializer(serializers.Serializer[Any]):
    """The figures of one thing, such as a queue."""

    subject = serializers.CharField()
    error = serializers.CharField(allow_blank=True, help_text="Why it has no figures; empty when it has.")
    figures = OverviewFigureSerializer(many=True)


class OverviewPanelSerializer(serializers.Serializer[Any]):
    """One part of the package."""

    name = serializers.CharField()
    title = serializers.CharField()
    error = serializers.CharField(allow_blank=True, help_text="Why it tells nothing; empty when it does.")
    figures = OverviewFigureSerializer(many=True)
    rows = OverviewRowSerializer(many=True)
    more = serializers.IntegerField(help_text="Rows that were left out.")
    bars = serializers.ListField(child=serializers.FloatField(), help_text="A number a minute, the present one last.")
    notes = serializers.ListField(child=serializers.CharField())


class OverviewSerializer(serializers.Serializer[Any]):
    """The parts that the user may see."""

    panels = OverviewPanelSerializer(many=True)
