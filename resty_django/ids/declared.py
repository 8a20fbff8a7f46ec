"""Rules declared in code, in IDS["RULES"], so that a release ships them without a data migration.

A counter belongs to a row, so a declared rule needs one. `migrate` writes the row, and so does each process when it
first reads the rules: the settings overwrite the row. The anchor stays, as with any edit, and the scramble key stays
unless the settings name one. Declared rules are read-only in the admin and over HTTP. A rule that is removed from the
settings remains as an ordinary rule.

Checks:
    resty_ids.E001: A rule in `IDS["RULES"]` cannot be used. The message names the field.
    resty_ids.E002: An `IdField` without a rule, with `null=True`, or with an `app`, a declared rule or a `max_length`
        that does not suit it. The message says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Field
from django.db.models.signals import post_migrate

from resty_django.conf import conf
from resty_django.conf.schema import key_text, see_key
from resty_django.text import logger
from resty_django.text.suggestions import did_you_mean

from .engine.rule import compile_rule
from .models import RULE_FIELDS, IdRule
from .store import database

log = logger("resty_django.ids")

DECLARED_FIELDS: Final = (*RULE_FIELDS, "scramble_key")
"""The keys of a rule in IDS["RULES"]; `name` and `source` are required."""
PATH: Final = ("IDS", "RULES")


class _Read(NamedTuple):
    section: object
    rules: Mapping[str, Mapping[str, object]]
    problems: Sequence[str]


_read: _Read | None = None


def rules() -> Mapping[str, Mapping[str, object]]:
    """Return the fields of each valid declared rule, by name."""
    return _reading().rules


def problems() -> Sequence[str]:
    """Return one message for each invalid declared rule."""
    return _reading().problems


def is_declared(rule: IdRule) -> bool:
    return rule.name in rules()


def write() -> None:
    """Write the rows of declared rules that are missing or differ.

    Invalid rules are logged and skipped. Raise `django.db.Error`.
    """
    for problem in problems():
        log.error("%s: %s", key_text(PATH), problem)
    declared = rules()
    if not declared:
        return
    alias = database()
    rows = {row.name: row for row in IdRule.objects.using(alias).filter(name__in=declared)}
    for name, fields in declared.items():
        row = rows.get(name)
        if row is None:
            try:
                with transaction.atomic(using=alias):
                    IdRule(**fields).save(using=alias)
            except IntegrityError:
                log.debug("Another process has written rule %s.", name)
            continue
        changed = [field for field, value in _complete(fields).items() if getattr(row, field) != value]
        if changed:
            for field in changed:
                setattr(row, field, _complete(fields)[field])
            row.save(using=alias, update_fields=changed)
            log.warning(
                "Rule %s differed from RULES and was overwritten. Changed fields: %s.", name, ", ".join(sorted(changed))
            )


def check_rules(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return one check message for each invalid declared rule."""
    try:
        sentences = problems()
    except ImproperlyConfigured:
        return []  # the settings check reports it
    return [
        Error(f"{key_text(PATH)}: {problem}", hint=see_key(PATH).strip() or None, id="resty_ids.E001")
        for problem in sentences
    ]


def connect(config: AppConfig) -> None:
    """Write the rows after each `migrate`. Safe to call more than once."""
    post_migrate.connect(_migrated, sender=config, dispatch_uid="resty_ids_declared")


def _migrated(using: str, apps: Any = None, **kwargs: object) -> None:
    try:
        model = apps.get_model("resty_ids", "IdRule") if apps is not None else IdRule
    except LookupError:  # all migrations were reversed
        return
    if using == database() and model._meta.get_field("anchor").null:
        write()


def _reading() -> _Read:
    global _read
    section = conf.ids
    if _read is None or _read.section is not section:
        _read = _Read(section, *_checked(section.rules))
    return _read


def _checked(declared: Iterable[Mapping[str, object]]) -> tuple[dict[str, Mapping[str, object]], list[str]]:
    usable: dict[str, Mapping[str, object]] = {}
    faults: list[str] = []
    for fields in declared:
        name: Any = fields.get("name", "")
        if name in usable:
            faults.append(f"Two rules have the name {name!r}. Rename one of them.")
        elif fault := _fault(fields):
            faults.append(f"Rule {name!r}: {fault}")
        else:
            usable[name] = fields
    return usable, faults


def _fault(fields: Mapping[str, object]) -> str:
    """Return why a rule with these fields is not valid, or ""."""
    for field in fields:
        if field not in DECLARED_FIELDS:
            return f"{field} is not a field. " + did_you_mean(
                field, DECLARED_FIELDS, f"Use {', '.join(DECLARED_FIELDS)}.", quote=""
            )
    for field in ("name", "source"):
        if not fields.get(field):
            return f"{field} is missing. Set it to a string."
    for field, value in fields.items():
        kind = type(_default(field))
        if field == "salt_length" and (value is None or type(value) is int):
            continue
        if kind not in (bool, int):
            kind = str
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            kinds = {bool: "True or False", int: "a whole number", str: "a string"}[kind]
            return f"{field} is {value!r:.80}. Set it to {kinds}."
    rule = IdRule(**fields)
    try:
        rule.full_clean(validate_unique=False, validate_constraints=False)
        compile_rule(rule.spec())
        if rule.segment_size < 1 or rule.reset_seconds < 0 or rule.max_names < 1:
            return "segment_size or max_names is below 1, or reset_seconds below 0. Raise the number."
    except ValidationError as error:
        messages = error.message_dict
        return " ".join(f"{field}: {text}" for field, texts in messages.items() for text in texts)
    except Exception as error:
        return str(error)
    if conf.ids.step > 1 and ":scramble" in rule.source and rule.kind == "template" and "scramble_key" not in fields:
        return "Sites that share numbers by STEP need one scramble_key. Set it to the same string on all sites."
    return ""


def _default(field: str) -> object:
    model_field = IdRule._meta.get_field(field)
    return model_field.get_default() if isinstance(model_field, Field) else None


def _complete(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields, with defaults for missing ones.

    There is no default for the scramble key: if it is missing, the stored key stays.
    """
    return {
        field: fields[field] if field in fields else _default(field)
        for field in DECLARED_FIELDS
        if field != "scramble_key" or field in fields
    }
