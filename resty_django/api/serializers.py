"""JSON of all error responses."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ErrorSerializer(serializers.Serializer[Any]):
    """An error: a code, a message, and optional details."""

    code = serializers.CharField(help_text="A stable identifier, for programs.")
    message = serializers.CharField(help_text="A sentence, for people.")
    details = serializers.DictField(required=False, help_text="Optional details, such as `fields` (messages by field).")
