"""Import plans: the rules and counters that result from a configuration."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.core.exceptions import ValidationError
from django.db import transaction

from resty_django.conf import conf

from ..engine.counter import Clock
from ..engine.cycle import WEEK
from ..engine.lua.script import LuaRule
from ..engine.rule import ScriptRule, check_name, compile_rule
from ..errors import BadName, BadRule, IdError
from ..models import IdCounter, IdRule
from ..store import count_names, database
from .config import Config, IdServerRule, Refused
from .counters import Standing, counters_of, merge
from .table import IdServerRow

FEW = 100
"""The import warns about smaller segments."""
LATELY = 120
"""If a row was saved less than this number of seconds ago, id_server may still be running."""


@dataclass
class PlannedRule:
    """An unsaved rule and the positions of its counters."""

    rule: IdRule
    is_new: bool
    counters: list[Standing] = field(default_factory=list)


@dataclass
class Plan:
    """All changes of an import. `notices` are messages for the operator."""

    rules: list[PlannedRule]
    notices: list[str]

    def apply(self) -> None:
        """Write all changes in one transaction. If a counter has moved, raise Refused and write nothing."""
        alias = database()
        with transaction.atomic(using=alias):
            for planned in self.rules:
                planned.rule.save(using=alias)
                fresh = [standing.row(planned.rule) for standing in planned.counters if standing.stored is None]
                IdCounter.objects.using(alias).bulk_create(fresh, batch_size=500)
                count_names(alias, planned.rule.pk)
                for standing in planned.counters:
                    if standing.stored is not None and not standing.move(alias):
                        raise Refused(
                            f"Counter {standing.stored} moved during the import. Stop its users and run this again."
                        )


def make_plan(
    config: Config, rows: Sequence[IdServerRow] | None, *, update: bool = False, clock: Clock = time.time
) -> Plan:
    """Return the plan for a configuration and the rows of its table (None: rules only).

    Raise Refused if the import is not possible: a rule already exists and `update` is false, a script does not run
    here, or a row is from the future.
    """
    now = clock()
    rules = []
    notices: list[str] = []
    by_rule: dict[str, list[IdServerRow]] = defaultdict(list)
    for row in rows or ():
        by_rule[row.rule].append(row)
    for original in config.rules:
        planned = _rule(original, config, update, notices)
        mine = list(_usable(by_rule.pop(original.name, []), notices))
        planned.counters = counters_of(planned.rule, mine, step=config.step, now=now, notices=notices)
        if not planned.is_new:
            merge(planned.rule, planned.counters, step=config.step, alias=database(), notices=notices)
        names = len({standing.app for standing in planned.counters})
        if names > planned.rule.max_names:
            planned.rule.max_names = 2 * names
            notices.append(f"Rule {original.name} has {names} application names: its max_names becomes {2 * names}.")
        rules.append(planned)
    for name, orphans in sorted(by_rule.items()):
        notices.append(
            f"{len(orphans)} rows of rule {name} are skipped, because the configuration does not have this rule."
        )
    notices += _about_settings(config, rules)
    newest = max((row.saved_at for row in rows or ()), default=0)
    if newest > now - LATELY:
        notices.append(
            f"The table was written {max(0, round(now - newest))} s ago. If id_server is still running, stop it and "
            "import again: numbers that it issues from now on would be issued twice."
        )
    return Plan(rules, notices)


def _rule(original: IdServerRule, config: Config, update: bool, notices: list[str]) -> PlannedRule:
    name = original.name
    try:
        check_name(name, "name")
    except BadName as error:
        raise Refused(f"Rule {name!r}: {error} Rename it in the configuration.") from error
    stored = IdRule.objects.using(database()).filter(name=name).first()
    if stored is not None and not update:
        raise Refused(f"Rule {name} already exists. Run again with --update to replace it.")
    lua = conf.ids.lua
    try:
        script = LuaRule(original.script, name=name, milliseconds=lua.milliseconds, memory=lua.memory)
    except BadRule as error:
        raise Refused(f"Rule {name}, {original.path}: {error}") from error
    fields = {
        "kind": IdRule.Kind.LUA,
        "source": original.script,
        "min_counter": script.min_counter,
        "max_counter": script.max_counter,
        "reset_seconds": script.reset_seconds,
        "reset_calendar": "",
        "segment_size": original.segment_size,
        "fixed_length": True,
    }
    rule = IdRule(name=name, description="Imported from id_server.")  # gettext: keep
    if stored is not None:
        rule = IdRule.objects.using(database()).get(pk=stored.pk)
        if (rule.spec().anchor - script.min_counter) % config.step:
            raise Refused(
                f"Rule {name} was created here with another minimum, so its numbers belong to other nodes than in "
                "id_server. Delete it, or import under another name."
            )
    for key, value in fields.items():
        setattr(rule, key, value)
    rule._state.db = database()
    _try(rule, notices)
    try:
        rule.full_clean(validate_unique=False)
    except ValidationError as error:
        raise Refused(f"Rule {name}: {'; '.join(error.messages)}") from error
    if stored is not None:
        notices += [f"Rule {name}: {risk}" for risk in rule.risks(stored)]
    if original.segment_size < FEW:
        notices.append(
            f"Rule {name} saves every {original.segment_size} numbers (batch_save). Here, requests wait for each such "
            "reservation. A segment size of 1000 is faster, but a crash then skips up to 1000 numbers."
        )
    if script.reset_seconds and script.reset_seconds % WEEK == 0:
        notices.append(f"Rule {name} resets each week: the week begins on Thursday in id_server and on Monday here.")
    return PlannedRule(rule, stored is None)


def _try(rule: IdRule, notices: list[str]) -> None:
    """Set fixed_length if the script's IDs allow it. Raise Refused if the script returns no ID."""
    try:
        compile_rule(rule.spec())
        return
    except BadRule as error:
        reason = error
    rule.fixed_length = False
    try:
        compiled = compile_rule(rule.spec())
        assert isinstance(compiled, ScriptRule)  # noqa: S101
        _first_id(compiled, rule.min_counter)
    except IdError as error:
        raise Refused(f"Rule {rule.name} does not return an ID here: {error}") from error
    notices.append(
        f"IDs of rule {rule.name} may differ in length ({reason}). Make sure that no two numbers result in the same "
        "ID; fixed_length is off for this rule."
    )


def _first_id(compiled: ScriptRule, number: int) -> str:
    """Return an ID with the shortest salt that the script accepts."""
    for length in range(33):
        try:
            return compiled.create(lambda: number, 0, "0" * length)
        except IdError:
            if length == 32:
                raise
    raise AssertionError("not reached")


def _usable(rows: Iterable[IdServerRow], notices: list[str]) -> Iterable[IdServerRow]:
    for row in rows:
        try:
            check_name(row.app)
        except BadName as error:
            notices.append(
                f"A row of rule {row.rule} is skipped, because its application name is not valid here: {error}."
            )
        else:
            yield row


def _about_settings(config: Config, rules: Sequence[PlannedRule]) -> Iterable[str]:
    ids = conf.ids
    if (ids.step, ids.offset) != (config.step, config.offset):
        yield (
            f"The configuration has id_step {config.step} and id_offset {config.offset}, but this site has STEP "
            f"{ids.step} and OFFSET {ids.offset}. Before any ID is issued, set:\n"
            f'    RESTY_DJANGO = {{"IDS": {{"STEP": {config.step}, "OFFSET": {config.offset}}}}}'
        )
    if any(planned.rule.reset_seconds for planned in rules):
        zones = sorted({planned.rule.spec().timezone for planned in rules})
        yield f"Days begin at midnight in {', '.join(zones)}. id_server used the local time of its machine."
