"""All policies as of one look at the database, ready for use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import keys, stats
from .decision import Decision
from .limiter import Limiter
from .matching import Match
from .spec import FIELDS, BadPolicy, PolicySpec, build, checked, state_prefix

log = logging.getLogger("resty_django.limits")


@dataclass(frozen=True, eq=False, slots=True)
class Policy:
    """A policy in force. `status` is None where the setting STATUS holds.

    `mode` is "enforce", "shadow" (decide and record, let pass) or "off" (do not even ask).
    """

    spec: PolicySpec
    limiter: Limiter[Any]
    key: keys.Key
    match: Match
    stored: bool
    """Of the database, and not declared by code."""
    name: str = field(init=False)
    mode: str = field(init=False)
    cost: int = field(init=False)
    status: int | None = field(init=False)

    def __post_init__(self) -> None:
        for name in ("name", "mode", "cost", "status"):
            object.__setattr__(self, name, getattr(self.spec, name))

    @property
    def methods(self) -> frozenset[str]:
        """Empty: all."""
        return self.match.methods

    def describe(self) -> str:
        """Its numbers in words."""
        return self.limiter.describe()

    def record(self, key: str, decision: Decision) -> None:
        """Count a decision for the figures of this policy."""
        stats.record(self.spec.name, key, decision, self.mode == "shadow")


@dataclass(frozen=True, slots=True)
class Table:
    """All policies as of one look at the database. `rows` is None where there was no look yet."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    matching: tuple[Policy, ...] = ()
    rows: tuple[Any, ...] | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    """Policies of the database that cannot be used, and why."""


def table_of(old: Table, rows: tuple[Any, ...] | None, declared: Mapping[str, PolicySpec]) -> Table:
    """The table of these rows and of what is declared; policies that have not changed stay the same objects."""
    specs = dict(declared)
    stored: set[str] = set()
    found: dict[str, Policy] = {}
    faults: dict[str, str] = {}
    for row in rows or ():
        spec = PolicySpec(**dict(zip(FIELDS, row, strict=True)))
        try:
            if (known := old.policies.get(spec.name)) is None or known.spec != spec:
                checked(spec)
        except BadPolicy as error:
            faults[spec.name] = str(error)
            if old.faults.get(spec.name) != str(error):
                log.error("%s What it was before acts on.", error)
            before = old.policies.get(spec.name)
            if before is not None and before.stored:
                found[spec.name] = before
            continue
        specs[spec.name] = spec
        stored.add(spec.name)
    for name, spec in specs.items():
        if name not in found:
            found[name] = _policy(old.policies.get(name), spec, name in stored)
    ordered = sorted(found.values(), key=lambda policy: (policy.spec.order, policy.name))
    acting = tuple(policy for policy in ordered if policy.match.any and policy.mode != "off")
    return Table({policy.name: policy for policy in ordered}, acting, rows, faults)


def _policy(before: Policy | None, spec: PolicySpec, stored: bool) -> Policy:
    if before is not None and before.spec == spec and before.stored == stored:
        return before
    limiter = limiter_of(spec)
    return Policy(spec, limiter, keys.parse(spec.key), Match(spec.path, spec.route, spec.view, spec.methods), stored)


def limiter_of(spec: PolicySpec) -> Limiter[Any]:
    """A limiter with the numbers of a policy, on the state that the policy has in the store."""
    return build(spec, prefix=state_prefix(spec), name=spec.name, on_error=spec.on_error or None)


__all__ = ["Policy", "Table", "limiter_of", "table_of"]
