"""Txids in forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from .codec import LENGTH, InvalidTxid, parse


class TxidField(forms.CharField):
    """A form field for a txid. Accepts upper case and surrounding spaces; returns lower case, or None if empty."""

    default_error_messages = {"invalid": _("Enter a transaction ID: 20 characters from 0-9 and a-v.")}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": LENGTH, **kwargs, "empty_value": None})

    def to_python(self, value: object) -> str | None:
        text = super().to_python(value)
        if text is None:
            return None
        try:
            return parse(text).txid
        except InvalidTxid:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None
