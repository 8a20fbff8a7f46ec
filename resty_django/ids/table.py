"""The rules of a process: all of them as of one look at the database, compiled."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from .engine.rule import Compiled, compile_rule
from .errors import BadRule
from .models import IdRule
from .store import database

log = logging.getLogger("resty_django.ids")


@dataclass(frozen=True)
class LoadedRule:
    """A rule of the table. `compiled` is None when it does not compile: `fault` then says why."""

    row: IdRule
    compiled: Compiled | None
    fault: BadRule | None = None

    def ready(self) -> Compiled:
        if self.compiled is None:
            fault = self.fault or BadRule("the rule does not compile")
            raise BadRule(str(fault), fault.position)
        return self.compiled


@dataclass
class Table:
    """All rules as of one look at the database; replaced as a whole, never changed."""

    rules: dict[str, LoadedRule] = field(default_factory=dict)
    versions: dict[int, tuple[object, ...]] = field(default_factory=dict)
    loaded_at: float = 0.0


def table_of_rules(old: Table | None) -> Table:
    """The table as of now: `old` itself where nothing changed, else a new one that keeps its unchanged rules."""
    rows = IdRule.objects.using(database())
    versions = {pk: tuple(rest) for pk, *rest in rows.values_list("pk", "version", "updated_at", "enabled")}
    if old is not None and versions == old.versions:
        old.loaded_at = time.monotonic()
        return old
    known = {loaded.row.pk: loaded for loaded in old.rules.values()} if old else {}
    rules: dict[str, LoadedRule] = {}
    for row in rows.filter(enabled=True):
        before = known.get(row.pk)
        same = before is not None and (before.row.version, before.row.updated_at) == (row.version, row.updated_at)
        rules[row.name] = before if before is not None and same else _loaded(row)
    return Table(rules, versions, time.monotonic())


def _loaded(row: IdRule) -> LoadedRule:
    try:
        return LoadedRule(row, compile_rule(row.spec()))
    except BadRule as error:
        return LoadedRule(row, None, error)
    except Exception as error:  # one broken rule must not keep the others from being read
        log.exception("rule %s cannot be used", row.name)
        return LoadedRule(row, None, BadRule(f"rule {row.name} cannot be used: {type(error).__name__}: {error}"))
