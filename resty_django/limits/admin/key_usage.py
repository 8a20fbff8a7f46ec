"""The rows of quotas and the bans of one key, for the search for a key."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from django.contrib.admin import AdminSite, ModelAdmin
from django.db import router
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise

from resty_django.admin.formatting import number
from resty_django.admin.statistics import Key, why
from resty_django.shdict import SharedDictError
from resty_django.text import printable

from ..bans import registry as bans
from ..bans.registry import ALL_LIMITS, LONGEST_REASON, Ban
from ..login.guard import NAMES as LOGIN_NAMES
from ..models import KeyBan, QuotaUsage
from ..policies import registry as policies
from ..quotas import changes, registry
from ..quotas.periods import Period
from ..quotas.quota import row_key
from ..statistics import catalog
from ..statistics.reporter import stats
from .key_forms import stored_forms

SHOWN: Final = 50
"""The maximum number of rows, and of bans, on the page."""
LONGEST_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class KeyQuota:
    """A row of the current period. `reserved`: units that are reserved to be used next; None: unknown."""

    pk: int
    name: str
    rate: str
    key: str
    row: QuotaUsage
    reserved: int | None

    @classmethod
    def of(cls, row: QuotaUsage) -> Self:
        counted = registry.find_quota(row.quota)
        return cls(
            pk=row.pk,
            name=printable(row.quota, LONGEST_TEXT),
            rate="" if counted is None else printable(counted.describe(), LONGEST_TEXT),
            key=Key.of(row.key).text,
            row=row,
            reserved=changes.reserved(row.quota, row.key, Period(row.starts_at, row.ends_at), row.resets),
        )

    @property
    def _used(self) -> int:
        return max(self.row.used - (self.reserved or 0), 0)

    @property
    def used(self) -> str:
        return number(self._used)

    @property
    def limit(self) -> str:
        return number(self.row.limit + self.row.granted)

    @property
    def remaining(self) -> str:
        return number(max(self.row.limit + self.row.granted - self._used, 0))

    @property
    def resets_at(self) -> datetime:
        return datetime.fromtimestamp(self.row.ends_at, timezone.get_current_timezone())


@dataclass(frozen=True, slots=True)
class KeyBanned:
    """A ban in force. `limit`: "" for all limits. `token`: identifies it in URLs; "" if its key is too long."""

    token: str
    limit: str
    key: str
    until: datetime
    number: int
    reason: str

    @classmethod
    def of(cls, ban: Ban) -> Self:
        return cls(
            token=Key.of(ban.name).token,
            limit=printable(ban.limit, LONGEST_TEXT),
            key=Key.of(ban.key).text,
            until=datetime.fromtimestamp(ban.until, timezone.get_current_timezone()),
            number=ban.number,
            reason=printable(ban.reason, LONGEST_REASON),
        )


def usage_context(
    site: AdminSite, request: HttpRequest, key: str, refused: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """Return the context with the quotas and the bans of a key that the user may view, and the permitted actions.

    `refused`: the names of series and the keys of stored refusals, which also find keys that contain the key.
    """
    context: dict[str, Any] = {"may_see_quotas": False, "may_see_bans": False}
    refused = list(refused)
    quotas = _viewable(site, request, QuotaUsage)
    if quotas is not None:
        rows = _quotas_of(key, refused)
        context |= {
            "may_see_quotas": True,
            "quotas": rows[:SHOWN],
            "more_quotas": len(rows) > SHOWN,
            "may_grant": quotas.may(request, "grant_quotausage"),
            "may_reset_usage": quotas.may(request, "reset_quotausage"),
        }
    banned = _viewable(site, request, KeyBan)
    if banned is not None:
        listed: list[KeyBanned] = []
        error: str | Promise = ""
        try:
            listed = _bans_of(key, refused)
        except SharedDictError as fault:
            error = why(fault)
        context |= {
            "may_see_bans": True,
            "bans": listed[:SHOWN],
            "more_bans": len(listed) > SHOWN,
            "bans_error": error,
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
    composed = (own for series, own in refused if catalog.kind_and_name(series)[0] == catalog.QUOTA)
    keys = dict.fromkeys(row_key(form) for form in (*stored_forms(key), *composed))
    rows = QuotaUsage.objects.using(router.db_for_write(QuotaUsage)).filter(key__in=keys, ends_at__gt=time.time())
    return [KeyQuota.of(row) for row in rows.order_by("quota", "key")[: SHOWN + 1]]


def _bans_of(key: str, refused: Sequence[tuple[str, str]]) -> list[KeyBanned]:
    """Return bans in force, those that end last first. Raise `SharedDictError`."""
    forms, limits = stored_forms(key), _limits_with_bans()
    composed = ((catalog.kind_and_name(series), own) for series, own in refused)
    names = dict.fromkeys(
        [
            *((limit, form) for limit in limits for form in forms),
            *((limit, own) for (kind, limit), own in composed if kind == catalog.BAN),
        ]
    )
    in_force = sorted(bans.in_force(names), key=lambda ban: (-ban.until, ban.limit, ban.key))
    return [KeyBanned.of(ban) for ban in in_force]


def _limits_with_bans() -> list[str]:
    """Return the names of limits that may have bans: also those that other processes have counted."""
    series = dict.fromkeys((*catalog.counted_limits(), *stats.names()))
    counted = (name for kind, name in map(catalog.kind_and_name, series) if kind == catalog.BAN)
    return list(dict.fromkeys((ALL_LIMITS, *LOGIN_NAMES.values(), *policies.all_policies(), *counted)))
