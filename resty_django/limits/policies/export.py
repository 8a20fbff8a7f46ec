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
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from resty_django.numbers import grouped

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

KINDS: Final[Mapping[str, str | Promise]] = {
    "new": pgettext_lazy("rows of an import", "new"),
    "changed": pgettext_lazy("rows of an import", "changed"),
    "deleted": pgettext_lazy("rows of an import", "deleted"),
    "unchanged": pgettext_lazy("rows of an import", "unchanged"),
}
"""The kinds of changes that an import makes, with their names for people."""

S = TypeVar("S")

_DEFAULTS: Final = {field.name: field.default for field in fields(PolicySpec)}


class BadFile(ValueError):
    """A file cannot be imported. `problems`: messages with the position and what to change."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        unlisted = len(problems) - SHOWN
        more = [_("... and %(count)s more.") % {"count": unlisted}] if unlisted > 0 else []
        super().__init__("\n".join([*problems[:SHOWN], *more]))


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
                text = _("%(position)s: an earlier policy also has the name %(name)s. Rename one of them.")
                problems.append(text % {"position": f"policies[{number}]", "name": repr(spec.name)})
            specs[spec.name] = spec
    if problems:
        raise BadFile(problems)
    return list(specs.values())


def document_of(text: str) -> dict[str, Any]:
    """Return the JSON object of a file, whose lists may have wrong entries. Raise `BadFile` with all problems."""
    if len(text) > LONGEST:
        text = _("The file is too long. Use at most %(count)s characters.")
        raise BadFile([text % {"count": grouped(LONGEST)}])
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadFile([_("The file is not JSON: %(error)s.") % {"error": error}]) from error
    if not isinstance(data, dict):
        raise BadFile([_('The file is not a JSON object. It must begin with {"format": ...}.')])
    problems = list(_head_problems(data))
    if problems:
        raise BadFile(problems)
    for key in KEYS[2:]:
        if len(data.get(key, ())) > MOST:
            text = _('The list "%(key)s" has %(count)s entries. The maximum is %(max)s.')
            raise BadFile([text % {"key": key, "count": grouped(len(data[key])), "max": grouped(MOST)}])
    return data


def _head_problems(data: dict[str, Any]) -> Iterable[str]:
    if data.get("format") != FORMAT:
        yield _wrong_value("format", f'"{FORMAT}"', data.get("format"))
    version = data.get("version")
    if version != VERSION or isinstance(version, bool):
        advice = _("Export the policies again, or update this site.")
        yield f"{_wrong_value('version', str(VERSION), version)} {advice}"
    if "policies" not in data and "overrides" not in data:
        yield _('The file has neither "policies" nor "overrides". Add a list of them.')
    for key in KEYS[2:]:
        if key in data and not isinstance(data[key], list):
            yield _('"%(key)s" must be a list.') % {"key": key}
    for key in data:
        if key not in KEYS:
            text = _("%(key)s is not a valid key; the keys are %(keys)s. Remove it.")
            yield text % {"key": shown(key), "keys": ", ".join(KEYS)}


def _wrong_value(key: str, value: str, actual: object) -> str:
    return _('"%(key)s" must be %(value)s, not %(actual)s.') % {"key": key, "value": value, "actual": shown(actual)}


def _entry(number: int, entry: object, problems: list[str]) -> PolicySpec | None:
    if not isinstance(entry, dict):
        problems.append(not_an_object(f"policies[{number}]", entry))
        return None
    name = entry.get("name")
    position = f"policies[{number}]" + (f" ({name[:64]!r})" if isinstance(name, str) else "")
    try:
        return from_values(entry)
    except BadPolicy as error:
        problems += [f"{position}: {field[:64]}: {text}" for field, text in error.problems.items()]
        return None


def not_an_object(position: str, entry: object) -> str:
    text = _("%(position)s must be an object, not %(value)s.")
    return text % {"position": position, "value": shown(entry)}


def shown(value: object) -> str:
    """Return a value as JSON, shortened, for an error."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:40] + "…"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        keys = [key for key, _value in pairs]
        repeated = next(key for key in unique if keys.count(key) > 1)
        raise ValueError(_("the key %(key)s is repeated in one object") % {"key": repr(repeated[:64])})
    return unique


def _no_constant(text: str) -> float:
    raise ValueError(_("%(text)s is not a JSON number") % {"text": text})


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
    def kind(self) -> str:
        """The kind of the change for people."""
        return str(KINDS[self.what])

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
    return _("(empty)") if value in (None, "") else ", ".join(lines_of(str(value)))


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes of an import, computed before anything is written."""

    changes: tuple[Change[Any], ...]

    @property
    def acting(self) -> list[Change[Any]]:
        return [change for change in self.changes if change.what != "unchanged"]

    def counted(self) -> dict[str, int]:
        counts = dict.fromkeys(KINDS, 0)
        for change in self.changes:
            counts[change.what] += 1
        return counts

    def __str__(self) -> str:
        words = (f"{grouped(count)} {KINDS[what]}" for what, count in self.counted().items() if count)
        return ", ".join(words) or _("nothing")


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
