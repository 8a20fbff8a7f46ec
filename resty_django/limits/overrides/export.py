"""Export and import of overrides as JSON, in the same files as policies.

{"format": "resty_django.limits", "version": 1, "overrides": [{"kind": "user", "key": "7", "rate": "600/m"}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import router, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from resty_django.suggestions import did_you_mean

from ..models import LimitOverride
from ..policies.export import BadFile, Change, Plan, as_text, document_of, not_an_object, shown
from ..policies.spec import PolicySpec, build, rate_specs
from .spec import FIELDS, OverrideSpec, find_problems, known_limiters

NAMES: Final = {"from": "starts_at", "until": "ends_at"}
"""Keys in a file that differ from the names of the fields."""
KEYS: Final = ("kind", "key", "limit", "rate", "from", "until", "reason")
REQUIRED: Final = ("kind", "key", "rate")


def write(overrides: Iterable[OverrideSpec]) -> str:
    """Return the content of a file with these overrides; equal overrides result in equal files."""
    return as_text({"overrides": listed(overrides)})


def listed(overrides: Iterable[OverrideSpec]) -> list[dict[str, Any]]:
    """Return the overrides as in a file, in order."""
    return [values(spec) for spec in sorted(overrides, key=lambda spec: spec.identity)]


def values(spec: OverrideSpec) -> dict[str, Any]:
    """Return the fields of an override that are set, as in JSON."""
    fields_set = {}
    for key in KEYS:
        value = getattr(spec, NAMES.get(key, key))
        if value is not None and value != "":
            fields_set[key] = aware(value).isoformat() if isinstance(value, datetime) else value
    return fields_set


def aware(moment: datetime) -> datetime:
    """Return a time in UTC; a naive one is in the time zone of the site."""
    return (timezone.make_aware(moment) if timezone.is_naive(moment) else moment).astimezone(
        timezone.get_fixed_timezone(0)
    )


def read(text: str, policies: Iterable[PolicySpec] = ()) -> list[OverrideSpec] | None:
    """Return the overrides of a file, None if it has no list of them. Raise `BadFile` with all problems.

    `policies`: policies that are imported too, whose limits the overrides may change.
    """
    entries = document_of(text).get("overrides")
    if entries is None:
        return None
    imported = {policy.name: policy for policy in policies}

    def limiters(series: str) -> Iterable[Any]:
        return map(build, rate_specs(imported[series])) if series in imported else known_limiters(series)

    problems: list[str] = []
    specs: dict[tuple[str, str, str], OverrideSpec] = {}
    for number, entry in enumerate(entries):
        position = f"overrides[{number}]"
        if not isinstance(entry, dict):
            problems.append(not_an_object(position, entry))
            continue
        spec, own = _spec(entry)
        if spec is not None:
            names = {field: key for key, field in NAMES.items()}
            own = {names.get(field, field): text for field, text in find_problems(spec, limiters).items()}
            if spec.identity in specs:
                own["key"] = _("An earlier override is for the same key and limit. Remove one of them.")
            specs[spec.identity] = spec
        problems += [f"{position}: {key[:64]}: {text}" for key, text in own.items()]
    if problems:
        raise BadFile(problems)
    return list(specs.values())


def _spec(entry: Mapping[str, Any]) -> tuple[OverrideSpec | None, dict[str, str]]:
    """Return the override of an entry, or None, and the problems with its keys and types."""
    problems: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, _("Use %(names)s.") % {"names": ", ".join(KEYS)})
            problems[key] = _("An override has no such field. %(hint)s") % {"hint": hint}
        elif not isinstance(value, str):
            problems[key] = _("This must be a string, not %(value)s.") % {"value": shown(value)}
        elif key in NAMES:
            try:
                fields[NAMES[key]] = _moment(value)
            except ValueError as error:
                problems[key] = str(error)
        elif "\x00" in value:
            problems[key] = _("This must not contain a NUL character.")
        else:
            fields[key] = value
    problems |= {key: _("This field is required.") for key in REQUIRED if key not in entry}
    return (None if problems else OverrideSpec(**fields)), problems


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text[:64])
    except ValueError as error:
        problem = _("%(text)s is not a time. Write it as in 2027-01-31T12:00:00+00:00.")
        raise ValueError(problem % {"text": repr(text[:64])}) from error
    if timezone.is_naive(moment):
        problem = _("%(text)s has no time zone. Write it as in 2027-01-31T12:00:00+00:00.")
        raise ValueError(problem % {"text": repr(text)})
    return moment if settings.USE_TZ else timezone.make_naive(moment)


@dataclass(frozen=True, slots=True)
class OverrideChange(Change[OverrideSpec]):
    """The change of one override by an import."""

    fields: ClassVar[tuple[str, ...]] = FIELDS

    def words(self, spec: OverrideSpec) -> str:
        return spec.describe()


def stored() -> dict[tuple[str, str, str], LimitOverride]:
    """Return the overrides in the database by identity."""
    rows = LimitOverride.objects.using(router.db_for_write(LimitOverride))
    return {row.spec().identity: row for row in rows}


def plan(overrides: Iterable[OverrideSpec], *, prune: bool = False) -> Plan:
    """Return the changes that an import of these overrides would make; `prune`: delete all others."""
    return _plan({identity: row.spec() for identity, row in stored().items()}, overrides, prune)


def _plan(before: Mapping[tuple[str, str, str], OverrideSpec], overrides: Iterable[OverrideSpec], prune: bool) -> Plan:
    after = {spec.identity: spec for spec in overrides}
    changes = [OverrideChange(spec.title, before.get(identity), spec) for identity, spec in after.items()]
    if prune:
        changes += [OverrideChange(spec.title, spec, None) for key, spec in before.items() if key not in after]
    return Plan(tuple(sorted(changes, key=lambda change: change.name)))


def apply(
    overrides: Iterable[OverrideSpec], *, prune: bool = False
) -> list[tuple[Change[OverrideSpec], LimitOverride]]:
    """Import all overrides or none, and return the changes with their rows. A deleted row still has its primary key."""
    from ..policies.invalidation import overrides_changed_together

    using = router.db_for_write(LimitOverride)
    with transaction.atomic(using=using), overrides_changed_together(using):
        rows = stored()
        applied: list[tuple[Change[OverrideSpec], LimitOverride]] = []
        for change in _plan({identity: row.spec() for identity, row in rows.items()}, overrides, prune).acting:
            spec = change.before or change.after
            row = (rows.get(spec.identity) if spec is not None else None) or LimitOverride()
            pk = row.pk
            if change.after is None:
                row.delete()
                row.pk = pk
            else:
                row.take(change.after)
                row.save()
            applied.append((change, row))
        return applied
