"""Exports of the tables about one key: its limits, overrides, bans, quotas and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from resty_django.admin.export import Sheet


def exports(context: Mapping[str, Any]) -> Iterator[Sheet]:
    """Yield the tables of the page with this context, so that users export only what they may view."""
    for name, columns, rows, values in (
        (
            "key-limits",
            ("limit", "kind", "rate", "key", "override", "next_request", "remaining", "retry_after", "refused_hour"),
            context.get("states"),
            _of_state,
        ),
        (
            "key-overrides",
            ("limit", "kind", "key", "rate", "from", "until", "reason"),
            context.get("key_overrides"),
            _of_override,
        ),
        (
            "key-bans",
            ("limit", "key", "until", "number", "reason"),
            context.get("bans"),
            lambda ban: (ban.limit, ban.key, ban.until, ban.number, ban.reason),
        ),
        (
            "key-quotas",
            ("quota", "units", "key", "used", "limit", "granted", "resets"),
            context.get("quotas"),
            lambda quota: (
                *(quota.name, quota.rate, quota.key, quota.used_units, _units(quota), quota.row.granted),
                quota.resets_at,
            ),
        ),
        (
            "key-refusals",
            ("time", "limit", "kind", "key", "outcome"),
            context.get("listed_refusals"),
            lambda refusal: (refusal.at, refusal.name, str(refusal.kind_label), refusal.key, str(refusal.outcome)),
        ),
    ):
        if rows:
            yield _sheet(name, columns, rows, values)


def _sheet(name: str, columns: Sequence[str], rows: Iterable[Any], values: Callable[[Any], Sequence[Any]]) -> Sheet:
    return Sheet(name, columns, lambda: map(values, rows))


def _of_state(state: Any) -> Sequence[Any]:
    decision = None if state.outcome == "unknown" else state.decision
    return (
        state.name,
        str(state.kind_label),
        state.rate,
        state.shown_key,
        "" if state.override is None else state.override.rate,
        str(state.outcome_label),
        None if decision is None else decision.remaining,
        decision.retry_after if decision is not None and state.outcome == "refused" else None,
        state.refused,
    )


def _units(quota: Any) -> int | None:
    """Return the limit of a quota, with granted units; None if an override lifts it."""
    return None if quota.override is not None and quota.override.lifts else quota.limit_units


def _of_override(override: Mapping[str, Any]) -> Sequence[Any]:
    row = override["row"]
    return (
        *(override["limit"], row.kind, override["key"], row.rate, row.starts_at, row.ends_at),
        override["reason"],
    )
