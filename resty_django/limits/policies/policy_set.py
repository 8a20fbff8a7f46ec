"""An immutable set of all policies, as of one read of the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from django.http import HttpRequest
from django.urls import ResolverMatch

from resty_django.text import logger

from ..callers import keys
from ..decision import Decision
from ..limiters.base import Limiter
from ..limiters.combined import CombinedLimiter, together
from ..specs.ban import BanRule, ban_rule
from ..specs.policy import POLICY_FIELDS, PolicySpec, build, describe, rate_specs, state_prefix, tier_specs
from ..specs.policy_validation import BadPolicy, validate
from ..statistics.reporter import stats
from .exemptions import PolicyExemption, exemption_of
from .matching import Match, TextTest, any_pattern

log = logger("resty_django.limits")

MAX_REMEMBERED: Final = 1024
"""The maximum number of requests whose policies are remembered."""

Matched: TypeAlias = tuple[str, str | None, str | None]


@dataclass(frozen=True, eq=False, slots=True)
class Policy:
    """An active policy. `status`: None to use the setting STATUS.

    `rates`: the limiters of the policy's own rates, all of which must let a request pass. `tiers`: likewise, by tier.

    `mode` is "enforce", "shadow" (decide and count, but let all requests pass) or "off" (do not decide).
    """

    spec: PolicySpec
    rates: tuple[Limiter, ...]
    key: keys.RequestKey
    match: Match
    stored: bool
    """Whether the policy is from the database, not declared in code."""
    tiers: Mapping[str, tuple[Limiter, ...]] = field(default_factory=dict)
    exemption: PolicyExemption | None = None
    ban: BanRule | None = None
    limiter: Limiter | CombinedLimiter = field(init=False)
    """Decides by all of the policy's own rates."""
    name: str = field(init=False)
    mode: str = field(init=False)
    cost: int = field(init=False)
    status: int | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limiter", together(self.rates))
        for name in ("name", "mode", "cost", "status"):
            object.__setattr__(self, name, getattr(self.spec, name))

    @property
    def methods(self) -> frozenset[str]:
        """The methods to which the policy applies; empty: all."""
        return self.match.methods

    @property
    def limiters(self) -> list[Limiter]:
        """All limiters: of the policy's own rates, and of its tiers."""
        return [*self.rates, *(limiter for limiters in self.tiers.values() for limiter in limiters)]

    def describe(self) -> str:
        """Return the limit in words, with the limits of its tiers."""
        return describe(self.spec)

    def record(self, key: str, decision: Decision, request: HttpRequest | None = None) -> None:
        """Count a decision in the statistics of this policy."""
        stats.record(self.name, key, decision, self.mode == "shadow", request)

    def record_refusal(self, key: str, decision: Decision, request: HttpRequest | None = None) -> None:
        """Count a decision only if it is a refusal."""
        if not decision.allowed:
            self.record(key, decision, request)


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All policies as of one read of the database. `rows`: None before the first read."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    matching: tuple[Policy, ...] = ()
    rows: tuple[Any, ...] | None = None
    paths: TextTest | None = None
    """Returns whether a path fits any policy in `matching`; None: test each of them instead."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Invalid policies in the database, with their problems."""
    remembered: dict[Matched, tuple[Policy, ...]] = field(default_factory=dict)
    """Results of `find` by what determines them."""
    by_function: bool = False
    """Whether a policy in `matching` names the function or class of a view."""

    def find(self, request: HttpRequest, match: ResolverMatch | None, matched: Matched) -> tuple[Policy, ...]:
        """Return the policies in `matching` that match a request, and remember them.

        `matched`: what determines them, unless a policy names a function: path, method and name of the view.
        """
        if self.paths is not None and self.paths(request.path_info) is None:
            policies: tuple[Policy, ...] = ()
        else:
            policies = tuple(policy for policy in self.matching if policy.match.fits(request, match))
        if len(request.path_info) <= 200 and not self.by_function:
            if len(self.remembered) >= MAX_REMEMBERED:
                self.remembered.clear()
            self.remembered[matched] = policies
        return policies


def build_policy_set(old: PolicySet, rows: tuple[Any, ...] | None, declared: Mapping[str, PolicySpec]) -> PolicySet:
    """Return the set of these rows and the declared policies; unchanged policies stay the same objects."""
    specs = dict(declared)
    stored: set[str] = set()
    policies: dict[str, Policy] = {}
    faults: dict[str, str] = {}
    for row in rows or ():
        spec = PolicySpec(**dict(zip(POLICY_FIELDS, row, strict=True)))
        try:
            if (previous := old.policies.get(spec.name)) is None or previous.spec != spec:
                validate(spec)
        except BadPolicy as error:
            faults[spec.name] = str(error)
            if old.faults.get(spec.name) != str(error):
                log.error("%s The previous version stays in force.", error)
            before = old.policies.get(spec.name)
            if before is not None and before.stored:
                policies[spec.name] = before
            continue
        specs[spec.name] = spec
        stored.add(spec.name)
    for name, spec in specs.items():
        if name not in policies:
            policies[name] = _policy(old.policies.get(name), spec, name in stored)
    ordered = sorted(policies.values(), key=lambda policy: (policy.spec.order, policy.name))
    matching = tuple(policy for policy in ordered if policy.match.any and policy.mode != "off")
    paths = any_pattern([policy.spec.path for policy in matching])
    by_function = any(policy.spec.view for policy in matching)
    by_name = {policy.name: policy for policy in ordered}
    return PolicySet(by_name, matching, rows, paths, faults, by_function=by_function)


def _policy(before: Policy | None, spec: PolicySpec, stored: bool) -> Policy:
    if before is not None and before.spec == spec and before.stored == stored:
        return before
    match = Match(spec.path, spec.route, spec.view, spec.methods)
    return Policy(
        spec,
        limiters_of(spec),
        keys.parse(spec.key),
        match,
        stored,
        limiters_of_tiers(spec),
        exemption_of(spec),
        ban_rule_of(spec),
    )


def limiters_of(spec: PolicySpec) -> tuple[Limiter, ...]:
    """Return the limiters of the policy's own rates, for its states in the store."""
    return _limiters(rate_specs(spec))


def limiters_of_tiers(spec: PolicySpec) -> dict[str, tuple[Limiter, ...]]:
    """Return the limiters of the tiers of a policy. Each tier has separate states."""
    return {tier: _limiters(specs, tier) for tier, specs in tier_specs(spec).items()}


def _limiters(specs: Iterable[PolicySpec], tier: str = "") -> tuple[Limiter, ...]:
    return tuple(
        build(spec, prefix=state_prefix(spec, tier, position), name=spec.name, on_error=spec.on_error or None)
        for position, spec in enumerate(specs)
    )


def ban_rule_of(spec: PolicySpec) -> BanRule | None:
    """Return when a valid policy bans keys, or None if it does not."""
    if not spec.ban:
        return None
    return ban_rule({"ban": spec.ban, "ban_after": spec.ban_after or 1}, "A policy")
