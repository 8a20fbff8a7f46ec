"""The rules of a process, read from the database together and compiled."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from resty_django.text import logger

from .. import declared
from ..engine.rule import Compiled, compile_rule
from ..errors import BadRule
from ..models import IdRule, fix_anchors
from ..store import database

log = logger("resty_django.ids")


@dataclass(frozen=True)
class LoadedRule:
    """A rule of the set. `compiled` is None if it does not compile; `fault` then has the reason."""

    row: IdRule
    compiled: Compiled | None
    fault: BadRule | None = None

    def ready(self) -> Compiled:
        if self.compiled is None:
            fault = self.fault or BadRule("The rule does not compile.")
            raise BadRule(f"The rule {self.row.name!r} cannot be used: {fault}", fault.position)
        return self.compiled


@dataclass
class RuleSet:
    """All rules as of one read of the database; replaced as a whole, never changed."""

    rules: dict[str, LoadedRule] = field(default_factory=dict)
    versions: dict[int, tuple[object, ...]] = field(default_factory=dict)
    loaded_at: float = 0.0


def load_rules(old: RuleSet | None) -> RuleSet:
    """Return the current rules: `old` itself if nothing changed, else a new set that reuses the unchanged rules."""
    rows = IdRule.objects.using(database())
    if old is None:
        declared.write()
    versions = _versions()
    if not declared.rules().keys() <= {name for name, *_ in versions.values()}:
        declared.write()
        versions = _versions()
    if old is not None and versions == old.versions:
        old.loaded_at = time.monotonic()
        return old
    if rows.filter(anchor=None).exists():
        fix_anchors(database())
    loaded_by_id = {loaded.row.pk: loaded for loaded in old.rules.values()} if old else {}
    rules: dict[str, LoadedRule] = {}
    for row in rows.filter(enabled=True):
        before = loaded_by_id.get(row.pk)
        same = before is not None and (before.row.version, before.row.updated_at) == (row.version, row.updated_at)
        rules[row.name] = before if before is not None and same else _loaded(row)
    return RuleSet(rules, versions, time.monotonic())


def _versions() -> dict[int, tuple[object, ...]]:
    rows = IdRule.objects.using(database())
    return {pk: tuple(columns) for pk, *columns in rows.values_list("pk", "name", "version", "updated_at", "enabled")}


def _loaded(row: IdRule) -> LoadedRule:
    try:
        return LoadedRule(row, compile_rule(row.spec()))
    except BadRule as error:
        return LoadedRule(row, None, error)
    except Exception as error:  # one broken rule must not affect the others
        log.exception("Rule %s cannot be used.", row.name)
        return LoadedRule(row, None, BadRule(f"{type(error).__name__}: {error}"))
