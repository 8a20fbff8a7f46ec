"""Policies and overrides as files, in the JSON format of Django's serializers, without primary keys.

    [{"model": "resty_limits.limitpolicy", "fields": {"name": "pay", "algorithm": "leaky_bucket", "rate": "20/s"}}]

Rows are found by their natural keys. Fields that are missing have their default values.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

from django.conf import settings
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import models, router, transaction
from django.utils import timezone

from resty_django.text import one_line
from resty_django.text.suggestions import did_you_mean

from ..limiters.base import Limiter
from ..models import Editable, LimitOverride, LimitPolicy
from ..specs.lines import lines_of
from ..specs.policy import build, rate_specs
from ..statistics.catalog import known_limiters
from .invalidation import changed_together

MODELS: Final[dict[str, type[Editable]]] = {model._meta.label_lower: model for model in (LimitPolicy, LimitOverride)}
MAX_CHARACTERS: Final = 10 * 1024 * 1024
"""The maximum length of a file that is loaded."""
SHOWN_PROBLEMS: Final = 20
"""The maximum number of problems that an error lists."""
MAX_TITLE: Final = 90
"""The maximum length of a row's title or a key in an error."""


class BadFile(ValueError):
    """A file cannot be loaded. The message lists the problems with their row, their field and what to change."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of a file, or one that is deleted.

    `kind`: created, changed, unchanged or deleted. `lines`: the fields that are set or changed, as text.
    """

    row: Editable
    kind: str
    lines: list[str]


def dump(rows: Iterable[Editable]) -> str:
    """Return a file with these rows. Equal rows result in equal files."""
    in_order = sorted(rows, key=lambda row: (isinstance(row, LimitOverride), row.natural_key()))
    fields = {name for model in MODELS.values() for name in _fields(model)}
    text = serializers.serialize("json", in_order, fields=fields, use_natural_primary_keys=True, indent=2)
    # The file may be printed to a terminal.
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def load(text: str, *, prune: bool = False, dry_run: bool = False) -> list[RowChange]:
    """Store the rows of a file, all or none, and return the changes. Raise `BadFile` with all problems.

    `prune`: delete the other rows of the models in the file. `dry_run`: change nothing.
    """
    rows = _read(text)
    using = router.db_for_write(LimitPolicy)
    with transaction.atomic(using=using), transaction.atomic(using=router.db_for_write(LimitOverride)):
        stored = {
            (type(row), row.natural_key()): row
            for model in dict.fromkeys(type(row) for row in rows)
            for row in model.objects.newest()
        }
        changes = [_change(row, stored.pop((type(row), row.natural_key()), None)) for row in rows]
        if prune:
            changes += [RowChange(row, "deleted", []) for row in stored.values()]
        if not dry_run:
            with changed_together(using):
                for change in changes:
                    if change.kind == "deleted":
                        change.row.delete()
                    elif change.kind != "unchanged":
                        change.row.save()
    return changes


def _change(row: Editable, stored: Editable | None) -> RowChange:
    """Return the change that makes a stored row equal to the row of a file."""
    target, lines = stored or type(row)(), []
    for name in _fields(type(row)):
        old, new = getattr(target, name), getattr(row, name)
        if old != new:
            lines.append(f"{name}: {_shown(new)}" if stored is None else f"{name}: {_shown(old)} → {_shown(new)}")
            setattr(target, name, new)
    return RowChange(target, "created" if stored is None else "changed" if lines else "unchanged", lines)


def _shown(value: object) -> str:
    return "(empty)" if value in (None, "") else ", ".join(lines_of(str(value)))


def _fields(model: type[Editable]) -> dict[str, models.Field[Any, Any]]:
    """Return the fields of a model that a file contains."""
    return {field.name: field for field in model._meta.concrete_fields if field.editable and not field.primary_key}


def _read(text: str) -> list[Editable]:
    """Return the valid rows of a file, which are not compared with stored rows."""
    if len(text) > MAX_CHARACTERS:
        raise BadFile(f"The file is too long. Use at most {MAX_CHARACTERS:,} characters.")
    try:
        entries = json.loads(text, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"The file is not valid JSON: {error}.") from error
    if not isinstance(entries, list):
        raise BadFile("The file is not a JSON list of rows.")
    rows: dict[int, Editable] = {}
    errors: dict[int, ValidationError] = {}
    for number, entry in enumerate(entries, 1):
        try:
            rows[number] = _row(entry)
        except ValidationError as error:
            errors[number] = error
    numbers: dict[tuple[type[Editable], tuple[str, ...]], int] = {}
    limiters: dict[str, list[Limiter]] = {}
    for number, row in sorted(rows.items(), key=lambda item: isinstance(item[1], LimitOverride)):
        first = numbers.setdefault((type(row), row.natural_key()), number)
        try:
            if isinstance(row, LimitOverride):
                row.limiters = lambda limit: limiters.get(limit) or known_limiters(limit)
            row.full_clean(validate_unique=False, validate_constraints=False)
            if first != number:
                same = ", ".join(row.key_fields)
                raise ValidationError({"fields": f"Row {first} has the same {same}. Remove one of them."})
            if isinstance(row, LimitPolicy):
                limiters[row.name] = [build(spec) for spec in rate_specs(row.spec())]
        except ValidationError as error:
            errors[number] = error
    if errors:
        titles = {number: f" ({one_line(row, MAX_TITLE)})" for number, row in rows.items()}
        problems = [
            f"Row {number}{titles.get(number, '')}: {one_line(field, MAX_TITLE)}: {one_line(' '.join(texts), 300)}"
            for number in sorted(errors)
            for field, texts in errors[number].message_dict.items()
        ]
        more = [f"... and {len(problems) - SHOWN_PROBLEMS:,} more."] if len(problems) > SHOWN_PROBLEMS else []
        raise BadFile("\n".join(problems[:SHOWN_PROBLEMS] + more))
    return list(rows.values())


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        ((key, _count),) = Counter(key for key, _value in pairs).most_common(1)
        raise ValueError(f"the key {key[:MAX_TITLE]!r} is repeated in one object")
    return unique


def _row(entry: object) -> Editable:
    """Return the row of an entry. Its values have the types of their fields, but may be invalid."""
    match entry:
        case {"model": str(label), "fields": dict(items), **others} if label.lower() in MODELS and {*others} <= {"pk"}:
            model = MODELS[label.lower()]
        case _:
            names = " or ".join(MODELS)
            raise ValidationError(
                {"model": f'A row must be {{"model": NAME, "fields": {{...}}}}, with the name {names}.'}
            )
    fields = _fields(model)
    values: dict[str, Any] = {}
    errors: dict[str, ValidationError] = {}
    for name, value in items.items():
        try:
            if name in fields:
                values[name] = _typed(fields[name], value)
            elif name not in ("version", "created_at", "updated_at"):  # in files of dumpdata
                hint = did_you_mean(name, fields, f"Use {', '.join(fields)}.")
                raise ValidationError(f"There is no such field. {hint}")
        except ValidationError as error:
            errors[name] = error
    if errors:
        raise ValidationError(errors)
    return model(**values)


def _typed(field: models.Field[Any, Any], value: Any) -> object:
    """Return a JSON value in the type of its field. Raise `ValidationError` instead of converting another type."""
    if value is None and field.null:
        return None
    if isinstance(field, models.IntegerField | models.FloatField):
        types, name = ((int,), "whole number") if isinstance(field, models.IntegerField) else ((int, float), "number")
        if type(value) not in types or abs(value) >= 2**63:
            raise ValidationError(f"This must be a {name} of at most 64 bits.")
        return value
    if not isinstance(value, str) or re.search("[\0\ud800-\udfff]", value):
        raise ValidationError("This must be a string without NUL characters and lone surrogates.")
    if not isinstance(field, models.DateTimeField):
        return value
    moment = field.to_python(value)
    try:
        if timezone.is_aware(moment):
            return moment.astimezone(UTC) if settings.USE_TZ else timezone.make_naive(moment)
    except OverflowError as error:
        raise ValidationError("This time is outside of the calendar.") from error
    if settings.USE_TZ:
        raise ValidationError("This time has no time zone. Write it as in 2027-01-31T12:00:00Z.")
    return moment
