"""Saving and deleting rules over HTTP."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from rest_framework.request import Request

from resty_django.api.errors import Conflict
from resty_django.api.versions import check_version

from ..declared import is_declared
from ..engine.rule import check_name, compile_rule
from ..errors import BadName, BadRule, UnknownRule
from ..models import IdRule
from ..store import database
from .errors import RisksUnconfirmed, RuleInvalid


def find(name: str) -> IdRule:
    """Return the rule with that name. Raise UnknownRule if it does not exist."""
    try:
        check_name(name)
    except BadName:
        raise UnknownRule(f"There is no rule {name!r:.80}.") from None
    rule = IdRule.objects.using(database()).filter(name=name).first()
    if rule is None:
        raise UnknownRule(f"There is no rule {name!r:.80}.")
    return rule


def edited(rule: IdRule, changes: Mapping[str, object]) -> IdRule:
    """Return an unsaved copy of `rule` with the changes."""
    draft = copy.copy(rule)
    draft._state = copy.copy(rule._state)
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft


def check(rule: IdRule) -> None:
    """Raise RuleInvalid if the rule must not be saved."""
    alias = database()
    rule._state.db = alias
    fields: dict[str, list[str]] = {}
    try:
        rule.full_clean(validate_unique=False)
    except ValidationError as error:
        fields = error.message_dict
    if "name" not in fields and IdRule.objects.using(alias).filter(name=rule.name).exclude(pk=rule.pk).exists():
        fields["name"] = [f"A rule named {rule.name} already exists."]
    if fields:
        raise RuleInvalid(fields, _position(rule) if "source" in fields else None)


def _check_editable(rule: IdRule) -> None:
    if is_declared(rule):
        raise Conflict(f"The rule {rule.name} is declared in RESTY_DJANGO['IDS']['RULES']. Change it there.")


def create(changes: Mapping[str, object]) -> IdRule:
    """Save and return a new rule."""
    rule = IdRule(**changes)
    check(rule)
    with transaction.atomic(using=database()):
        rule.save(using=database())
    return rule


def update(rule: IdRule, changes: Mapping[str, object], *, confirmed: bool, request: Request) -> IdRule:
    """Save the changes, write no other field, and return the rule.

    Raise RisksUnconfirmed if the changes are risky and not `confirmed`, and PreconditionFailed if the rule's version
    differs from the version in the request.
    """
    _check_editable(rule)
    with transaction.atomic(using=database()):
        stored = _locked(rule, request)
        draft = edited(stored, changes)
        check(draft)
        risks = draft.risks(stored)
        if risks and not confirmed:
            raise RisksUnconfirmed(risks)
        if changes:
            draft.save(using=database(), update_fields=list(changes))
    return draft


def _locked(rule: IdRule, request: Request) -> IdRule:
    """Return the stored rule, locked until the transaction ends."""
    rows = IdRule.objects.using(database()).filter(pk=rule.pk)
    rows.update(version=F("version"))  # locks on every database, including SQLite
    stored = rows.first()
    if stored is None:
        raise UnknownRule(f"There is no rule {rule.name!r:.80}.")
    check_version(request, stored.version)
    return stored


def delete(rule: IdRule, *, confirmed: bool, request: Request) -> None:
    """Delete a rule and its counters. Raise RisksUnconfirmed if it has counters and `confirmed` is false."""
    _check_editable(rule)
    if not confirmed and rule.counters.using(database()).exists():
        raise RisksUnconfirmed(
            [
                "The rule's counters are deleted with it: a new rule with that name would issue them again. "
                "To take a rule out of use, set enabled to false."
            ]
        )
    with transaction.atomic(using=database()):
        _locked(rule, request).delete(using=database())


def _position(rule: IdRule) -> int | None:
    try:
        compile_rule(rule.spec())
    except BadRule as error:
        return error.position
    except ValueError:
        pass
    return None
