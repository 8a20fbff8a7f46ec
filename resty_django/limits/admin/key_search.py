"""One key in all limits: its state, its refusals, its reset, its quotas and its bans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from resty_django.admin.base import PageAdmin
from resty_django.admin.statistics import KeyView, key_of, why
from resty_django.admin.tables import filter_form, listing
from resty_django.conf import conf
from resty_django.shdict import SharedDictError
from resty_django.text import printable
from resty_django.txid import is_txid

from ..decision import Decision
from ..errors import LimitError
from ..models import LimitOverride, LimitPolicy
from ..overrides.current import current, now
from ..overrides.limits import overridden_limiter
from ..overrides.override_set import Override
from ..policies import registry
from ..specs.override import ALL_LIMITS, EVERYWHERE
from ..statistics import catalog
from ..statistics.reporter import stats
from . import columns
from .all_limits import KIND_LABELS
from .key_bans import KeyBans, bans_of
from .key_forms import stored_forms, user_of
from .key_overrides import add_query, override_rows_context, subject, subject_of
from .key_refusals import refusals_of
from .key_usage import usage_context
from .statistics import RefusedKey, outages

TEMPLATES: Final = "admin/resty_limits/limitpolicy"
MAX_LIMITERS: Final = 300
"""The maximum number of limiters that a search asks for the state of a key."""


@dataclass(frozen=True)
class KeyState:
    """The state of a key in a limit. `decision`: the next request's, or None if the store does not answer.

    `refused`: the refusals in the last hour as text, "" if the key is not among the most refused ones. `override`: the
    override that applies, or None. `add_query`: the query of the form that adds one, "" if it cannot apply. `banned`:
    whether a ban refuses the key. `enforced`: whether the limit refuses requests.
    """

    series: str
    key: str
    rate: str
    decision: Decision | None
    refused: str = ""
    override: Override | None = None
    add_query: str = ""
    banned: bool = False
    enforced: bool = True

    @property
    def kind_label(self) -> Any:
        return KIND_LABELS[catalog.kind_and_name(self.series)[0]]

    @property
    def name(self) -> str:
        return printable(catalog.kind_and_name(self.series)[1], columns.MAX_SHOWN_CHARACTERS)

    @property
    def shown_key(self) -> str:
        return KeyView.of(self.key).text

    @property
    def outcome(self) -> str:
        """The outcome of the next request."""
        if self.decision is None or self.decision.failed:
            return "unknown"
        if not self.decision.allowed:
            return "refused" if self.enforced else "shadowed"
        return "delayed" if self.decision.delay >= 0.001 else "passed"

    @property
    def outcome_label(self) -> Any:
        labels = {
            "unknown": _("the store is down"),
            "refused": _("refused"),
            "shadowed": _("would be refused"),
            "delayed": _("delayed"),
            "passed": _("passed"),
        }
        return _("banned") if self.banned else labels[self.outcome]

    @property
    def query(self) -> str:
        """The query that identifies the key and the limit."""
        return urlencode({"limit": self.series, "k": KeyView.of(self.key).token})


class KeySearchAdmin(PageAdmin[LimitPolicy]):
    """Pages about one key, for users who may view policies; the reset also needs the permission `reset_key`."""

    def key_search_urls(self) -> list[URLPattern]:
        return [
            self.page_url("key", self.key_view, "limits/key/"),
            self.page_url("reset_limit", self.reset_limit_view, "limits/key/reset/"),
        ]

    @method_decorator(require_safe)
    def key_view(self, request: HttpRequest) -> HttpResponse:
        """Show the limits in which the key of the query has a state or refusals. Counts nothing."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        key = request.GET.get("key", "").strip()[:500]
        states: list[KeyState] = []
        refusals = None
        bans = KeyBans()
        error = ""
        limits = list(_loaded_limits())
        if key:
            try:
                stats.flush()
                refusals = refusals_of(key)
                bans = bans_of(key, refusals.keys)
                states = list(_states(key, limits[:MAX_LIMITERS], bans))
            except SharedDictError as fault:
                error = why(fault)
        context = {
            "title": _("Find a key"),
            "key": key,
            "is_request": is_txid(key),
            "key_user": user_of(request, key),
            "states": listing(request, columns.STATE_COLUMNS, states),
            "filter": filter_form(request),
            "refusals": refusals,
            "listed_refusals": listing(
                request, columns.REFUSAL_COLUMNS, refusals.listed if refusals else (), name="refusals"
            ),
            "outages": outages(),
            "error": error,
            "limiters": min(len(limits), MAX_LIMITERS),
            "incomplete": len(limits) > MAX_LIMITERS,
            "may_reset": self.may(request, "reset_key"),
            **self._override_context(request, key),
            **override_rows_context(self.admin_site, request, key),
            **(usage_context(self.admin_site, request, key, refusals.keys, bans) if refusals is not None else {}),
        }
        return self.page(request, f"{TEMPLATES}/key.html", context)

    def _override_context(self, request: HttpRequest, key: str) -> dict[str, Any]:
        overrides = self.admin_site.get_model_admin(LimitOverride)
        return {
            "may_see_override": overrides.has_view_or_change_permission(request),
            "may_override": overrides.has_add_permission(request),
            "policies_only": conf.limits.overrides != EVERYWHERE,
            "override_query": add_query(ALL_LIMITS, *subject_of(key)) if key and not is_txid(key) else "",
        }

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def reset_limit_view(self, request: HttpRequest) -> HttpResponse:
        """Delete the state of a key in one limit, after a confirmation."""
        if not self.may(request, "reset_key"):
            raise PermissionDenied
        series, key = request.GET.get("limit", ""), key_of(request.GET.get("k", ""))
        limiters = [limit.limiter for limit in _loaded_limits() if limit.series == series]
        if not limiters or not key:
            raise Http404("This process has not loaded the limit, or the key is not valid.")
        shown = KeyView.of(key).text
        if request.method == "POST":
            try:
                reset = [limiter.reset(key) for limiter in limiters]
            except (LimitError, SharedDictError) as error:
                self.message_user(request, format_html(gettext("Not done: {}"), why(error)), messages.ERROR)
            else:
                if any(reset):
                    # Limits other than policies have no row: their entry is of no object.
                    row = self.model._default_manager.filter(name=series).first()
                    row = row or self.model(name=printable(series, columns.MAX_SHOWN_CHARACTERS))
                    self.add_history(request, f"Reset the key “{shown}”.", row)
                    text = format_html(gettext('Reset the key <code class="resty-id">{}</code>.'), shown)
                    self.message_user(request, text, messages.SUCCESS)
                else:
                    text = format_html(
                        gettext("Not done: The key “{}” has no stored state. It may have expired."), shown
                    )
                    self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(f"{reverse(self.url_name('key'))}?{urlencode({'key': key})}")
        context = {
            "title": _("Reset a key"),
            "button": _("Reset"),
            "name": printable(catalog.kind_and_name(series)[1], columns.MAX_SHOWN_CHARACTERS),
            "key": shown,
            "back": f"{reverse(self.url_name('key'))}?{urlencode({'key': key})}",
        }
        return self.page(request, f"{TEMPLATES}/reset_limit.html", context)


@dataclass(frozen=True)
class AskedLimit:
    """A limiter that a search asks. `series`: the limit's name in the statistics. `roles`, `enforced`: see
    `resty_django.limits.statistics.catalog.CountedLimit`.
    """

    series: str
    limiter: Any
    roles: tuple[str, ...]
    enforced: bool


def _loaded_limits() -> Iterator[AskedLimit]:
    """Yield the limiters that this process has loaded: of policies first."""
    for name, policy in sorted(registry.all_policies().items()):
        for limiter in policy.limiters:
            yield AskedLimit(name, limiter, policy.key.roles, policy.mode == "enforce")
    for series, limit in sorted(catalog.counted_limits().items()):
        for limiter in limit.limiters.values():
            yield AskedLimit(series, limiter, limit.roles, limit.enforced)


def _states(key: str, limits: list[AskedLimit], bans: KeyBans) -> Iterator[KeyState]:
    """Yield the states of a key, in each form in which limits store it. Raise `SharedDictError`."""
    keys = stored_forms(key)
    names = dict.fromkeys(limit.series for limit in limits)
    refusals = {series: {entry.key: RefusedKey.of(entry).count for entry in stats.top(series)} for series in names}
    for limit in limits:
        series, original, roles, enforced = limit.series, limit.limiter, limit.roles, limit.enforced
        for form in keys:
            refused = refusals[series].get(form, "")
            override = current.find(series, form, roles)
            has_rate = override is not None and not (override.lifts or override.blocks)
            limiter = overridden_limiter(original, override.rate) if override is not None and has_rate else original
            decision: Decision | None
            try:
                decision, fresh = limiter.peek(form), limiter.step(False, 1, None)[2]
            except LimitError:
                decision = None
            if override is not None and override.blocks:
                decision = override.refusal(limiter.shown_limit, now())
            elif override is not None and override.lifts:
                decision = Decision.passed(limit=0, remaining=0)
            ban = bans.find(series, form) if enforced and (override is None or has_rate) else None
            if ban is not None and decision is not None:
                decision = Decision.refused(limit=limiter.shown_limit, retry_after=max(ban.until - now(), 0.0))
            if override or ban or refused or decision is None or decision.failed or _is_used(decision, fresh):
                query = add_query(series, *subject(form, roles))
                yield KeyState(
                    series,
                    form,
                    limiter.describe(),
                    decision,
                    refused,
                    override,
                    query,
                    banned=ban is not None,
                    enforced=enforced,
                )
            if decision is None or decision.failed:
                break  # the store does not answer for the other forms either


def _is_used(decision: Decision, fresh: Decision) -> bool:
    """Return whether a decision differs from the first one of a key."""
    return (decision.allowed, decision.remaining) != (fresh.allowed, fresh.remaining) or decision.delay > fresh.delay
