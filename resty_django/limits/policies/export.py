"""Export and import of policies as JSON, for version control, review and other sites.

    {"format": "resty_django.limits", "version": 1, "policies": [{"name": "pay", "algorithm": "leaky_bucket", ...}]}

Fields with default values are omitted. An import first validates everything, and then makes all changes or none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Generic, TypeVar

from django.db import router, transaction

from ..models import LimitPolicy
from .lines import LINE_FIELDS, lines_of, value_of
from .spec import FIELDS, BadPolicy, PolicySpec, describe, from_values

FORMAT: Final = "resty_django.limits"
VERSION: Final = 1
LONGEST: Final = 1024 * 1024
"""The maximum number of characters of an imported file."""
MOST: Final = 1000
"""The maximum number of policies in a file."""
SHOWN: Final = 20
"""The maximum number of problems that an error lists."""

KEYS: Final = ("format", "version", "policies", "overrides")
"""The keys of a file. One of the last two may be missing; then an import leaves its rows unchanged."""

S = TypeVar("S")

_DEFAULTS: Final = {field.name: field.default for field in fields(PolicySpec)}


class BadFile(ValueError):
    """A file cannot be imported. `problems`: messages with the position and what to change."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        unlisted = len(problems) - SHOWN
        super().__init__("\n".join([*problems[:SHOWN], *([f"... and {unlisted} more."] if unlisted > 0 else [])]))


def write(policies: Iterable[PolicySpec]) -> str:
    """Return the content of a file with these policies; equal policies result in equal files."""
    return as_text({"policies": listed(policies)})


def listed(policies: Iterable[PolicySpec]) -> list[dict[str, Any]]:
    """Return the policies as in a file, in order."""
    return [_entry_of(spec) for spec in sorted(policies, key=lambda spec: (spec.order, spec.name))]


def as_text(lists: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the content of a file with these lists, by key."""
    document = {"format": FORMAT, "version": VERSION, **lists}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    # This may be printed to a terminal: everything except printable text is escaped.
    return (text if text.replace("\n", "").isprintable() else json.dumps(document, indent=2)) + "\n"


def values(spec: PolicySpec) -> dict[str, Any]:
    """Return the fields of a policy that differ from their defaults."""
    fields_set = {}
    for name in FIELDS:
        value = getattr(spec, name)
        if value != _DEFAULTS[name]:
            fields_set[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return fields_set


def _entry_of(spec: PolicySpec) -> dict[str, Any]:
    """Return the fields of a policy in a file: fields with lines as an object or a list."""
    return {name: value_of(name, value) if name in LINE_FIELDS else value for name, value in values(spec).items()}


def read(text: str) -> list[PolicySpec]:
    """Return the policies of a file. Raise `BadFile` with all problems."""
    problems: list[str] = []
    specs: dict[str, PolicySpec] = {}
    for number, entry in enumerate(document_of(text).get("policies", [])):
        spec = _entry(number, entry, problems)
        if spec is not None:
            if spec.name in specs:
                problems.append(
                    f"policies[{number}]: an earlier policy also has the name {spec.name!r}. Rename one of them."
                )
            specs[spec.name] = spec
    if problems:
        raise BadFile(problems)
    return list(specs.values())


def document_of(text: str) -> dict[str, Any]:
    """Return the JSON object of a file, whose lists may have wrong entries. Raise `BadFile` with all problems."""
    if len(text) > LONGEST:
        raise BadFile([f"The file is too long. Use at most {LONGEST:,} characters."])
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadFile([f"The file is not JSON: {error}."]) from error
    if not isinstance(data, dict):
        raise BadFile(['The file is not a JSON object. It must begin with {"format": ...}.'])
    problems = list(_head_problems(data))
    if problems:
        raise BadFile(problems)
    for key in KEYS[2:]:
        if len(data.get(key, ())) > MOST:
            raise BadFile([f"The file has {len(data[key]):,} {key}. The maximum is {MOST:,}."])
    return data


def _head_problems(data: dict[str, Any]) -> Iterable[str]:
    if data.get("format") != FORMAT:
        yield f'"format" must be "{FORMAT}", not {shown(data.get("format"))}.'
    version = data.get("version")
    if version != VERSION or isinstance(version, bool):
        yield f'"version" must be {VERSION}, not {shown(version)}. Export the policies again, or update this site.'
    if "policies" not in data and "overrides" not in data:
        yield 'The file has neither "policies" nor "overrides". Add a list of them.'
    for key in KEYS[2:]:
        if key in data and not isinstance(data[key], list):
            yield f'"{key}" must be a list.'
    for key in data:
        if key not in KEYS:
            yield f"{shown(key)} is not a valid key; the keys are {', '.join(KEYS[:-1])} and {KEYS[-1]}. Remove it."


def _entry(number: int, entry: object, problems: list[str]) -> PolicySpec | None:
    if not isinstance(entry, dict):
        problems.append(f"policies[{number}] must be an object, not {shown(entry)}.")
        return None
    name = entry.get("name")
    position = f"policies[{number}]" + (f" ({name[:64]!r})" if isinstance(name, str) else "")
    try:
        return from_values(entry)
    except BadPolicy as error:
        problems += [f"{position}: {field[:64]}: {text}" for field, text in error.problems.items()]
        return None


def shown(value: object) -> str:
    """Return a value as JSON, shortened, for an error."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:40] + "…"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in unique if keys.count(key) > 1)
        raise ValueError(f"the key {repeated[:64]!r} is repeated in one object")
    return unique


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


@dataclass(frozen=True, slots=True)
class Change(Generic[S]):
    """The change of one row by an import. `before`: None if it is new. `after`: None if it is deleted."""

    name: str
    before: S | None
    after: S | None
    fields: ClassVar[tuple[str, ...]] = FIELDS

    def words(self, spec: S) -> str:
        """Return a new row in words."""
        assert isinstance(spec, PolicySpec)  # noqa: S101 (for the type checker)
        return describe(spec)

    @property
    def what(self) -> str:
        if self.before is None:
            return "new"
        if self.after is None:
            return "deleted"
        return "unchanged" if self.before == self.after else "changed"

    @property
    def lines(self) -> list[str]:
        """The changed fields, as text."""
        if self.after is None:
            return []
        if self.before is None:
            return [self.words(self.after)]
        return [
            f"{name}: {_value(getattr(self.before, name))} → {_value(getattr(self.after, name))}"
            for name in self.fields
            if getattr(self.before, name) != getattr(self.after, name)
        ]


def _value(value: object) -> str:
    return "(empty)" if value in (None, "") else ", ".join(lines_of(str(value)))


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes of an import, computed before anything is written."""

    changes: tuple[Change[Any], ...]

    @property
    def acting(self) -> list[Change[Any]]:
        return [change for change in self.changes if change.what != "unchanged"]

    def counted(self) -> dict[str, int]:
        counts = dict.fromkeys(("new", "changed", "deleted", "unchanged"), 0)
        for change in self.changes:
            counts[change.what] += 1
        return counts

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counted().items() if count) or "nothing"


def stored() -> dict[str, LimitPolicy]:
    """Return the policies in the database by name."""
    return {row.name: row for row in LimitPolicy.objects.using(router.db_for_write(LimitPolicy))}


def plan(policies: Iterable[PolicySpec], *, prune: bool = False) -> Plan:
    """Return the changes that an import of these policies would make; `prune`: delete all others."""
    return _plan({name: row.spec() for name, row in stored().items()}, policies, prune)


def _plan(before: Mapping[str, PolicySpec], policies: Iterable[PolicySpec], prune: bool) -> Plan:
    after = {spec.name: spec for spec in policies}
    changes: list[Change[PolicySpec]] = [Change(name, before.get(name), spec) for name, spec in after.items()]
    if prune:
        changes += [Change(name, spec, None) for name, spec in before.items() if name not in after]
    return Plan(tuple(sorted(changes, key=lambda change: change.name)))


def apply(policies: Iterable[PolicySpec], *, prune: bool = False) -> list[tuple[Change[PolicySpec], LimitPolicy]]:
    """Import all policies or none, and return the changes with their rows. A deleted row still has its primary key."""
    with transaction.atomic(using=router.db_for_write(LimitPolicy)):
        rows = stored()
        applied = []
        for change in _plan({name: row.spec() for name, row in rows.items()}, policies, prune).acting:
            row = rows.get(change.name) or LimitPolicy()
            pk = row.pk
            if change.after is None:
                row.delete()
                row.pk = pk
            else:
                row.take(change.after)
                row.save()
            applied.append((change, row))
        return applied
