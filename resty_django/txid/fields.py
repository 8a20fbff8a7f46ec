"""Txids in the database.

    class Order(models.Model):
        id = TxidField(primary_key=True, default=txid)

    Order.objects.filter(id__txid_range=(start, end))    # created from start to end, inclusive
    Order.objects.filter(id__txid_date=date(2026, 11, 21))

Both lookups compare the column with two strings, so they can use an index. Times are aware datetimes or numbers of
milliseconds; naive datetimes and dates are interpreted in Django's current time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from datetime import time as daytime
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.lookups import Range
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .codec import LENGTH, MAX_RANDOM, MAX_TIME_MS, InvalidTxid, encode, milliseconds, parse
from .forms import TxidField as TxidFormField

if TYPE_CHECKING:
    _CharField = models.CharField[Any, Any]
    _Range = Range[Any]
else:
    _CharField = models.CharField
    _Range = Range

COLLATIONS: Final = {"mysql": "utf8mb4_bin", "postgresql": "C"}
"""Collations that compare text byte by byte. SQLite does so by default."""


def validate_txid(value: object) -> None:
    """Raise `ValidationError` if the value is not a txid. Model serializers run this validator too."""
    _canonical(value)


def _canonical(value: Any) -> str:
    try:
        return parse(value).txid
    except InvalidTxid as error:
        text = _("“%(value)s” is not a transaction ID: %(fault)s")
        raise ValidationError(text, code="invalid", params={"value": value, "fault": str(error)}) from None


class TxidField(_CharField):
    """A txid column that sorts bytewise on every database; suitable as a primary key with `default=txid`.

    Values are validated and stored in lower case; an invalid value raises `ValidationError`, also in lookups that
    compare whole IDs. The empty string is treated as None.
    """

    description = _("Sortable transaction ID")
    empty_strings_allowed = False
    default_validators = [validate_txid]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["max_length"] = LENGTH
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Sequence[object], dict[str, object]]:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["max_length"]
        return name, path, args, kwargs

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, str | None]:
        parameters = super().db_parameters(connection)
        if connection.vendor in COLLATIONS:
            parameters["collation"] = COLLATIONS[connection.vendor]
        return parameters

    def to_python(self, value: Any) -> str | None:
        return None if value is None or value == "" else _canonical(value)

    def get_prep_value(self, value: Any) -> str | None:
        return self.to_python(super().get_prep_value(value))

    def formfield(self, *args: Any, **kwargs: Any) -> forms.Field | None:
        return super().formfield(*args, **{"form_class": TxidFormField, **kwargs})


@TxidField.register_lookup
class MadeInRange(_Range):
    """The lookup `__txid_range=(start, end)`: created from start to end, inclusive, to the millisecond."""

    lookup_name = "txid_range"

    def get_prep_lookup(self) -> Iterable[str]:
        try:
            start, end = self.rhs
        except (TypeError, ValueError):
            raise ValueError(f"txid_range needs a pair (start, end), not {self.rhs!r}.") from None
        self.rhs = bounds(start, end)
        return super().get_prep_lookup()


@TxidField.register_lookup
class MadeOnDate(_Range):
    """The lookup `__txid_date=date`: created on that day in the current time zone."""

    lookup_name = "txid_date"

    def get_prep_lookup(self) -> Iterable[str]:
        if not isinstance(self.rhs, date) or isinstance(self.rhs, datetime):
            raise ValueError(f"txid_date needs a datetime.date, not {self.rhs!r}.")
        start, end = (_midnight(day) for day in (self.rhs, self.rhs + timedelta(days=1)))
        self.rhs = bounds(start, milliseconds(end) - 1)
        return super().get_prep_lookup()


def bounds(start: float | datetime, end: float | datetime) -> tuple[str, str]:
    """Return the smallest txid of `start` and the largest of `end`, limited to the valid range."""
    low, high = (min(max(milliseconds(_aware(time)), 0), MAX_TIME_MS) for time in (start, end))
    return encode(low, 0), encode(high, MAX_RANDOM)


def _aware(time: float | datetime) -> float | datetime:
    if isinstance(time, datetime) and timezone.is_naive(time):
        return timezone.make_aware(time)
    return time


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, daytime()))
