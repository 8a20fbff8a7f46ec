"""Files with policies and overrides: read, planned and imported as a whole."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db import router, transaction

from ..models import LimitOverride, LimitPolicy
from ..policies import export as policies
from ..policies.export import BadFile, Change, Plan
from ..policies.spec import PolicySpec
from . import export as overrides
from .spec import OverrideSpec


class Content(NamedTuple):
    """The policies and the overrides of a file; None: it has no list of them, and an import leaves them unchanged."""

    policies: list[PolicySpec] | None
    overrides: list[OverrideSpec] | None


def read(text: str) -> Content:
    """Return the content of a file. Raise `BadFile` with all problems."""
    problems: list[str] = []
    specs: list[PolicySpec] = []
    listed = "policies" in policies.document_of(text)
    try:
        specs = policies.read(text)
    except BadFile as error:
        problems += error.problems
    try:
        content = Content(specs if listed else None, overrides.read(text, specs))
    except BadFile as error:
        raise BadFile([*problems, *error.problems]) from error
    if problems:
        raise BadFile(problems)
    return content


def plan(content: Content, *, prune: bool = False, prune_overrides: bool = False) -> Plan:
    """Return the changes that an import would make. `prune`, `prune_overrides`: delete what is not in the file."""
    changes: list[Change[Any]] = []
    if content.policies is not None:
        changes += policies.plan(content.policies, prune=prune).changes
    if content.overrides is not None:
        changes += overrides.plan(content.overrides, prune=prune_overrides).changes
    return Plan(tuple(changes))


def apply(
    content: Content, *, prune: bool = False, prune_overrides: bool = False
) -> list[tuple[Change[Any], LimitPolicy | LimitOverride]]:
    """Import everything or nothing, and return the changes with their rows."""
    applied: list[tuple[Change[Any], LimitPolicy | LimitOverride]] = []
    with (
        transaction.atomic(using=router.db_for_write(LimitPolicy)),
        transaction.atomic(using=router.db_for_write(LimitOverride)),
    ):
        if content.policies is not None:
            applied += policies.apply(content.policies, prune=prune)
        if content.overrides is not None:
            applied += overrides.apply(content.overrides, prune=prune_overrides)
    return applied
