"""IDs taken inside the caller's transaction: for gapless rules, and for all rules in EAGER mode."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from .. import store
from ..engine.counter import Clock
from ..engine.rule import Compiled, ScriptRule, check_name
from ..engine.segment import Grant
from ..errors import BadCount, NeedsTransaction, RuleFailed
from .rule_cache import LoadedRule

Done = Callable[[str, str, list[str]], object]


def take(loaded: LoadedRule, count: int, app: str, salt: str, *, clock: Clock, done: Done) -> list[str]:
    """Return `count` IDs; if the open transaction is rolled back, they are, too. Call `done(rule, app, ids)` on commit.

    Raise NeedsTransaction outside a transaction, except in EAGER mode, which opens one.
    """
    compiled = loaded.ready()
    check_name(app)
    if compiled.needs_salt:
        compiled.check_salt(salt)
    alias = store.database()
    if compiled.spec.gapless and not transaction.get_connection(alias).in_atomic_block:
        raise NeedsTransaction(
            f"Rule {loaded.row.name} is gapless. Take its IDs inside transaction.atomic(using={alias!r})."
        )
    with transaction.atomic(using=alias):
        ids = store.take_in_transaction(
            loaded.row,
            compiled.spec,
            app,
            alias=alias,
            clock=clock,
            use=lambda grant: _texts(compiled, grant, count, app, salt),
            want=count,
        )
        transaction.on_commit(lambda: done(loaded.row.name, app, ids) and None, using=alias)
    return ids


def _texts(compiled: Compiled, grant: Grant, count: int, app: str, salt: str) -> list[str]:
    if len(grant.numbers) < count:
        raise BadCount(
            f"The count is {count}, but the cycle has only {len(grant.numbers)} numbers left. Use a lower count."
        )
    wall = min(max(grant.shown, grant.cycle.start), grant.cycle.end - 1)
    if isinstance(compiled, ScriptRule):
        return [_one_number(compiled, number, wall, salt) for number in grant.numbers]
    shape = compiled.shape(wall, app)
    return [shape.render(number, salt) for number in grant.numbers]


def _one_number(rule: ScriptRule, number: int, wall: int, salt: str) -> str:
    calls = 0

    def take() -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RuleFailed(
                f"Rule {rule.spec.name} is gapless and its script takes more than one number for an ID. Take only one."
            )
        return number

    return rule.create(take, wall, salt)
