"""The rows of quotas that have counted one key, for the search for a key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from django.contrib.admin import AdminSite, ModelAdmin
from django.db import router
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from resty_django.admin.formatting import local_time, number
from resty_django.admin.statistics import KeyView
from resty_django.admin.tables import listing
from resty_django.text import printable

from ..models import KeyBan, QuotaUsage
from ..overrides.current import current
from ..overrides.override_set import Override
from ..quotas import changes, registry
from ..quotas.periods import Period
from ..quotas.store import row_key
from ..specs.rates import units_of
from ..statistics import catalog
from .columns import KEY_BAN_COLUMNS, KEY_QUOTA_COLUMNS, MAX_KEY_ROWS, MAX_SHOWN_CHARACTERS
from .key_bans import KeyBanned, KeyBans
from .key_forms import stored_forms
from .key_overrides import add_query, subject


@dataclass(frozen=True, slots=True)
class KeyQuota:
    """A row of the current period. `reserved`: units that are reserved to be used next; None: unknown.

    `override`: the override that applies, or None. `add_query`: the query of the form that adds one.
    """

    pk: int
    name: str
    rate: str
    key: str
    row: QuotaUsage
    reserved: int | None
    override: Override | None
    add_query: str

    @classmethod
    def of(cls, row: QuotaUsage) -> Self:
        counted = registry.find_quota(row.quota)
        series = catalog.series_name(catalog.LimitKind.QUOTA, row.quota)
        roles = () if counted is None else counted.key.roles
        return cls(
            pk=row.pk,
            name=printable(row.quota, MAX_SHOWN_CHARACTERS),
            rate="" if counted is None else printable(counted.describe(), MAX_SHOWN_CHARACTERS),
            key=KeyView.of(row.key).text,
            row=row,
            reserved=changes.reserved(row.quota, row.key, Period(row.starts_at, row.ends_at), row.resets),
            override=current.find(series, row.key, roles),
            add_query=add_query(series, *subject(row.key, roles)),
        )

    @property
    def used_units(self) -> int:
        return max(self.row.used - (self.reserved or 0), 0)

    @property
    def used(self) -> str:
        return number(self.used_units)

    @property
    def limit_units(self) -> int:
        """The limit with granted units: of the override, or of the last reservation."""
        override, limit = self.override, self.row.limit
        if override is not None and not (override.lifts or override.blocks):
            with suppress(ValueError):  # a rate for all limits
                limit = units_of(override.rate)
        return limit + self.row.granted

    @property
    def limit(self) -> Any:
        return _("none") if self.override is not None and self.override.lifts else number(self.limit_units)

    @property
    def remaining(self) -> str:
        if self.override is not None and self.override.lifts:
            return ""
        if self.override is not None and self.override.blocks:
            return "0"
        return number(max(self.limit_units - self.used_units, 0))

    @property
    def resets_at(self) -> datetime:
        return local_time(self.row.ends_at)


def usage_context(
    site: AdminSite, request: HttpRequest, key: str, refused: Sequence[tuple[str, str]], bans: KeyBans
) -> dict[str, Any]:
    """Return the context with the quotas and the bans of a key that the user may view, and the permitted actions.

    `refused`: the names of series and the keys of stored refusals, which also find keys that contain the key.
    """
    context: dict[str, Any] = {"may_see_quotas": False, "may_see_bans": False}
    quotas = _viewable(site, request, QuotaUsage)
    if quotas is not None:
        rows = _quotas_of(key, refused)
        context |= {
            "may_see_quotas": True,
            "quotas": listing(request, KEY_QUOTA_COLUMNS, rows[:MAX_KEY_ROWS], name="quotas"),
            "more_quotas": len(rows) > MAX_KEY_ROWS,
            "may_grant": quotas.may(request, "grant_quotausage"),
            "may_reset_usage": quotas.may(request, "reset_quotausage"),
        }
    banned = _viewable(site, request, KeyBan)
    if banned is not None:
        context |= {
            "may_see_bans": True,
            "bans": listing(request, KEY_BAN_COLUMNS, map(KeyBanned.of, bans.in_force[:MAX_KEY_ROWS]), name="bans"),
            "more_bans": len(bans.in_force) > MAX_KEY_ROWS,
            "bans_error": bans.error,
            "may_lift": banned.may(request, "lift_keyban"),
        }
    return context


def _viewable(site: AdminSite, request: HttpRequest, model: Any) -> Any:
    """Return the admin of a model, or None if the user may not view it."""
    if not site.is_registered(model):
        return None
    admin: ModelAdmin[Any] = site.get_model_admin(model)
    return admin if admin.has_view_or_change_permission(request) else None


def _quotas_of(key: str, refused: Sequence[tuple[str, str]]) -> list[KeyQuota]:
    """Return rows of the current periods: one query, which uses the index of the keys."""
    composed = (
        refused_key for series, refused_key in refused if catalog.kind_and_name(series)[0] == catalog.LimitKind.QUOTA
    )
    keys = dict.fromkeys(row_key(form) for form in (*stored_forms(key), *composed))
    rows = QuotaUsage.objects.using(router.db_for_write(QuotaUsage)).filter(key__in=keys, ends_at__gt=time.time())
    return [KeyQuota.of(row) for row in rows.order_by("quota", "key")[: MAX_KEY_ROWS + 1]]
