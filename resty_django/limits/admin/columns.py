"""Columns of the pages of limits, with the sort keys of their rows, and how much the pages show."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from resty_django.admin.tables import Column

MAX_SHOWN_CHARACTERS: Final = 200
"""The maximum number of characters of a name, a key or a reason that the pages show."""
MAX_KEY_ROWS: Final = 50
"""The maximum number of rows of each kind that the page of a key shows."""

ALL_LIMIT_COLUMNS: Final = (
    Column("name", _("Limit")),
    Column("kind", _("Kind"), of="kind_label"),
    Column("rate", _("Rate")),
    Column("passed", _("Passed"), number=True, of="figures.hour.passed"),
    Column("delayed", _("Delayed"), number=True, of="figures.hour.delayed"),
    Column("refused", _("Refused"), number=True, of="figures.hour.refused"),
    Column("shadowed", _("Would be refused"), number=True, of="figures.hour.shadowed"),
    Column("mode", _("Mode"), sorts=False, of="spec.mode"),
    Column("key", _("Key"), sorts=False, of="spec.key"),
)
"""The template shows the mode with the kind, and the key below the rate."""
REFUSED_KEY_COLUMNS: Final = (
    Column("key", _("Key"), of="text"),
    Column("refused", _("Refused"), number=True, of="times"),
)
BAN_COLUMNS: Final = (
    Column("key", _("Key")),
    Column("limit", _("Limit")),
    Column("since", _("Since"), time=True),
    Column("until", _("Until"), time=True),
    Column("number", _("Number"), number=True),
    Column("reason", _("Reason")),
)
STATE_COLUMNS: Final = (
    Column("limit", _("Limit"), of="name"),
    Column("kind", _("Kind"), of="kind_label"),
    Column("rate", _("Rate")),
    Column("key", _("Key"), of="shown_key"),
    Column("override", _("Override"), sorts=False, of=lambda state: ""),
    Column("outcome", _("Next request"), of="outcome_label"),
    Column("remaining", _("Remaining"), number=True, of="decision.remaining"),
    Column("retry_after", _("Retry after (s)"), number=True, of="decision.retry_after"),
    Column("refused", _("Refused in the last hour"), number=True, sorts=False),
)
KEY_OVERRIDE_COLUMNS: Final = (
    Column("limit", _("Limit"), of=lambda override: override["limit"]),
    Column("kind", _("Kind"), of=lambda override: override["row"].get_kind_display()),
    Column("key", _("Key"), of=lambda override: override["key"]),
    Column("rate", _("Rate"), of=lambda override: override["row"].rate),
    Column("from", _("From"), of=lambda override: override["row"].starts_at),
    Column("until", _("Until"), of=lambda override: override["row"].ends_at),
    Column("reason", _("Reason"), of=lambda override: override["reason"]),
)
KEY_BAN_COLUMNS: Final = (
    Column("limit", _("Limit")),
    Column("key", _("Key")),
    Column("override", _("Override"), sorts=False, of=lambda ban: ""),
    Column("until", _("Until"), time=True),
    Column("number", _("Number"), number=True),
    Column("reason", _("Reason")),
)
KEY_QUOTA_COLUMNS: Final = (
    Column("quota", _("Quota"), of="name"),
    Column("units", _("Units"), of="rate"),
    Column("key", _("Key")),
    Column("override", _("Override"), sorts=False, of=lambda quota: ""),
    Column("used", _("Used"), number=True, of="used_units"),
    Column("limit", pgettext_lazy("number", "Limit"), number=True, of="limit_units"),
    Column("remaining", _("Remaining"), number=True, of=lambda quota: quota.limit_units - quota.used_units),
    Column("resets", _("Resets"), time=True, of="row.ends_at"),
)
REFUSAL_COLUMNS: Final = (
    Column("time", _("Time"), time=True, of="at"),
    Column("limit", _("Limit"), of="name"),
    Column("kind", _("Kind"), of="kind_label"),
    Column("key", _("Key")),
    Column("request", _("Request")),
    Column("outcome", _("Outcome")),
)
