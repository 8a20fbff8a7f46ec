"""Saving and deleting rules by way of HTTP."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from ..engine.rule import check_name, compile_rule
from ..errors import BadName, BadRule, UnknownRule
from ..models import IdRule
from ..store import database
from .errors import RisksUnconfirmed, RuleInvalid


def find(name: str) -> IdRule:
    """The rule of that name; UnknownRule when there is none."""
    try:
        check_name(name)
    except BadName:
        raise UnknownRule(f"no rule {name!r:.80}") from None
    found = IdRule.objects.using(database()).filter(name=name).first()
    if found is None:
        raise UnknownRule(f"no rule {name!r:.80}")
    return found


def edited(rule: IdRule, changes: Mapping[str, Any]) -> IdRule:
    """A copy of `rule` with the changes, not saved."""
    draft = copy.copy(rule)
    draft._state = copy.copy(rule._state)
    for name, value in changes.items():
        setattr(draft, name, value)
    return draft


def check(rule: IdRule) -> None:
    """RuleInvalid when the rule must not be saved."""
    alias = database()
    rule._state.db = alias
    fields: dict[str, list[str]] = {}
    try:
        rule.full_clean(validate_unique=False)
    except ValidationError as error:
        fields = error.message_dict
    if "name" not in fields and IdRule.objects.using(alias).filter(name=rule.name).exclude(pk=rule.pk).exists():
        fields["name"] = [f"There is a rule {rule.name} already."]
    if fields:
        raise RuleInvalid(fields, _position(rule) if "source" in fields else None)


def create(changes: Mapping[str, Any]) -> IdRule:
    """A new rule, saved."""
    rule = IdRule(**changes)
    check(rule)
    with transaction.atomic(using=database()):
        rule.save(using=database())
    return rule


def update(rule: IdRule, changes: Mapping[str, Any], *, confirmed: bool) -> IdRule:
    """The rule with the changes, saved. RisksUnconfirmed when they are risky and not `confirmed`."""
    draft = edited(rule, changes)
    check(draft)
    risks = draft.risks(rule)
    if risks and not confirmed:
        raise RisksUnconfirmed(risks)
    with transaction.atomic(using=database()):
        draft.save(using=database())
    return draft


def delete(rule: IdRule, *, confirmed: bool) -> None:
    """Delete a rule with its counters. RisksUnconfirmed when it has any and that is not `confirmed`."""
    if not confirmed and rule.counters.using(database()).exists():
        raise RisksUnconfirmed(
            [
                "The rule's counters go with it: a rule of that name made later begins again with numbers that were "
                "given out. To take a rule out of use, set enabled to false."
            ]
        )
    with transaction.atomic(using=database()):
        rule.delete(using=database())


def _position(rule: IdRule) -> int | None:
    try:
        compile_rule(rule.spec())
    except BadRule as error:
        return error.position
    except ValueError:
        pass
    return None
