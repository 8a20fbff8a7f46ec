"""Txids in Django REST framework."""

from __future__ import annotations

from typing import Any

from resty_django import extras

with extras.needed("Fields of Django REST framework need"):
    from rest_framework import serializers

from .codec import LENGTH, InvalidTxid, parse


class TxidField(serializers.CharField):
    """A serializer field for a txid. Accepts upper case, returns lower case; errors describe the fault."""

    default_error_messages = {"not_a_txid": "{fault}"}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_length": LENGTH, "max_length": LENGTH, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        try:
            return parse(data).txid
        except InvalidTxid as error:
            self.fail("not_a_txid", fault=str(error))
