"""Previews of a rule's next IDs. A preview uses no numbers: it works on copies and never accesses the store.

Lua and Python scripts run as for a real ID, with the same limits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.conf import conf
from resty_django.text.localized import grouped

from .engine import segment
from .engine.counter import Clock
from .engine.cycle import DAY_SECONDS, WEEK_SECONDS, Cycle, Reset
from .engine.rule import MAX_SALT, MAX_TAKES, Compiled, RuleSpec, ScriptRule, check_name, compile_rule
from .engine.segment import Grant
from .engine.wall_clock import END, FIRST, wall_at
from .errors import BadName, BadRule, BadSalt, Exhausted, IdError
from .models import IdCounter, IdRule
from .store import row_of

PREVIEWED_IDS = 5


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a rule's source: line and column, counted from 1, and the text of the line around it."""

    line: int
    column: int
    before: str
    mark: str
    after: str


@dataclass(frozen=True, slots=True)
class Preview:
    """Up to PREVIEWED_IDS next IDs, or the error that prevents them, with its position in the source if known.

    `at_sample`: the error is in the sample application name or salt, not in the rule. `warnings` describe ways in which
    IDs could be equal, `notes` describe sizes.
    """

    ids: list[str] = field(default_factory=list)
    error: str = ""
    place: Place | None = None
    at_sample: bool = False
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def preview(
    rule: IdRule,
    *,
    counter: IdCounter | None = None,
    app: str = "",
    salt: str = "",
    count: int = PREVIEWED_IDS,
    clock: Clock = time.time,
) -> Preview:
    """Return the next IDs, starting at the rule's first number or at the position of `counter`.

    If the salt is empty and the rule needs one, a salt is generated.
    """
    try:
        compiled = compile_rule(rule.spec())
    except BadRule as error:
        return Preview(error=str(error), place=place_of(rule.source, error.position))
    except Exception as error:  # a Python rule may raise anything when it is instantiated
        reason = f"{type(error).__name__}: {error}"
        return Preview(error=_("The rule cannot be instantiated: %(reason)s") % {"reason": reason})
    notes = _notes(rule, compiled.spec)
    try:
        check_name(app)
        salt = salt or made_up_salt(compiled)
        if compiled.needs_salt:
            compiled.check_salt(salt)
    except (BadName, BadSalt) as error:
        return Preview(error=str(error), at_sample=True, notes=notes)
    try:
        grant = _grant(compiled, counter, count, clock)
        ids = list(_texts(compiled, grant, app, salt, count))
        warnings = _warnings(compiled, grant.cycle, salt)
    except Exhausted as error:
        return Preview(error=f"{error}.", notes=notes)
    except IdError as error:
        return Preview(error=str(error), notes=notes)
    if ids:
        lengths = sorted({len(text) for text in ids})
        notes.insert(0, _characters(lengths))
    return Preview(ids=ids, warnings=warnings, notes=notes)


def _characters(lengths: Sequence[int]) -> str:
    """Return the lengths of IDs in words, given in order."""
    if len(lengths) == 1:
        return ngettext("%(count)s character.", "%(count)s characters.", lengths[0]) % {"count": lengths[0]}
    return _("%(low)s to %(high)s characters.") % {"low": lengths[0], "high": lengths[-1]}


def example(rule: IdRule, *, app: str = "app", clock: Clock = time.time) -> str:
    """Return the first ID of the rule as of now, or "" if the rule does not work."""
    ids = preview(rule, app=app, count=1, clock=clock).ids
    return ids[0] if ids else ""


def made_up_salt(compiled: Compiled) -> str:
    """Return the shortest salt that the rule accepts."""
    if not compiled.needs_salt:
        return ""
    for length in range(MAX_SALT + 1):
        salt = "".join(str((n + 1) % 10) for n in range(length))
        try:
            compiled.check_salt(salt)
        except BadSalt:
            continue
        return salt
    return ""


def capacity(spec: RuleSpec, step: int, offset: int) -> int:
    """Return how many numbers the node at `offset` of `step` has in a cycle."""
    return max(0, (spec.max_counter - segment.first_number(spec, step, offset)) // step + 1)


def place_of(source: str, position: int | None) -> Place | None:
    """Return the place of the character at `position`, with some text of its line before and after."""
    if position is None:
        return None
    position = min(max(position, 0), len(source))
    start = source.rfind("\n", 0, position) + 1
    stop = source.find("\n", position)
    line = source[start : len(source) if stop < 0 else stop].rstrip("\r")
    column = position - start
    around = 48  # characters
    cut = max(0, column - around)
    return Place(
        line=source.count("\n", 0, position) + 1,
        column=column + 1,
        before=("…" if cut else "") + line[cut:column],
        mark=line[column : column + 1] or "▏",
        after=line[column + 1 : column + around] + ("…" if len(line) > column + around else ""),
    )


def _grant(compiled: Compiled, counter: IdCounter | None, count: int, clock: Clock) -> Grant:
    """Return the numbers of the next reservation: one for each ID, or a hundred for each ID of a script."""
    spec, ids = compiled.spec, conf.ids
    row = None
    step, offset, name = ids.step, ids.offset, spec.name
    if counter is not None:
        row = row_of(counter)
        step, offset, name = counter.step, counter.node_offset, str(counter)
    want = count * MAX_TAKES if compiled.scripted else count
    wall = wall_at(clock(), spec.zone)
    return segment.reserve(row, spec, wall=wall, step=step, offset=offset, want=want, name=name)[1]


def _texts(compiled: Compiled, grant: Grant, app: str, salt: str, count: int) -> Iterator[str]:
    wall = min(max(grant.shown, grant.cycle.start), grant.cycle.end - 1)
    if isinstance(compiled, ScriptRule):
        numbers = iter(grant.numbers)

        def take() -> int:
            number = next(numbers, None)
            if number is None:
                raise Exhausted(_("Rule %(rule)s has no numbers left.") % {"rule": compiled.spec.name})
            return number

        for index in range(count):
            try:
                yield compiled.create(take, wall, salt)
            except Exhausted:
                if not index:
                    raise
                return
        return
    shape = compiled.shape(wall, app)
    for number in grant.numbers:
        yield shape.render(number, salt)


def _warnings(compiled: Compiled, cycle: Cycle, salt: str) -> list[str]:
    spec = compiled.spec
    warnings: list[str] = []
    if isinstance(compiled, ScriptRule):
        warnings += _script_warnings(compiled, cycle, salt)
    elif not spec.reset.never and _shows(spec, "1Y") and not _shows(spec, "[YyG]"):
        warnings.append(_("The ID shows one digit of the year: the same IDs are issued again after ten years."))
    numbers = capacity(spec, conf.ids.step, conf.ids.offset)
    if not spec.gapless and numbers < 10 * spec.segment_size:
        warnings.append(
            _(
                "A segment of %(size)s is a large part of the %(numbers)s numbers in a cycle: a few killed processes "
                "could use up the cycle. Lower the segment size."
            )
            % {"size": grouped(spec.segment_size), "numbers": grouped(numbers)}
        )
    return warnings


def _shows(spec: RuleSpec, directive: str) -> bool:
    """Return whether the source contains a time directive, a regular expression, whose % is not escaped by another."""
    return re.search(rf"(?<!%)(?:%%)*%{directive}", spec.source) is not None


def _script_warnings(compiled: ScriptRule, cycle: Cycle, salt: str) -> Iterator[str]:
    spec = compiled.spec
    if spec.salt_length is None:
        yield _(
            "The salt may have any length: if the script shows it next to the number, two pairs of salt and number "
            "can result in the same ID. Set the length of the salt."
        )
    if not spec.fixed_length:
        yield _(
            "IDs may differ in length, so two numbers could result in the same ID. Turn on fixed length if you can."
        )
    if not spec.reset.never and FIRST <= cycle.start < cycle.end < END:
        later = spec.reset.cycle(cycle.end).start
        texts = {compiled.shape(wall, "").render(spec.min_counter, salt) for wall in (cycle.start, later)}
        if len(texts) == 1:
            yield _("The ID does not show its cycle: the same IDs are issued again after each reset.")
    for name, mine in (
        ("min_counter", spec.min_counter),
        ("max_counter", spec.max_counter),
        ("reset_seconds", spec.reset.seconds),
    ):
        value = getattr(compiled._script, name, None)
        if isinstance(value, int) and value != mine:
            template = _("The script's %(name)s() is %(script)s, but the rule has %(rule)s. The rule's value is used.")
            yield template % {"name": name, "script": grouped(value), "rule": grouped(mine)}


def _notes(rule: IdRule, spec: RuleSpec) -> list[str]:
    ids = conf.ids
    span = spec.max_counter - spec.min_counter + 1
    notes = [_("%(count)s numbers %(period)s.") % {"count": grouped(span), "period": _per(spec.reset)}]
    if ids.step > 1:
        numbers = capacity(spec, ids.step, ids.offset)
        first = segment.first_number(spec, ids.step, ids.offset)
        template = _("%(count)s of them are for this node (%(node)s of %(step)s), beginning with %(first)s.")
        values = {"count": grouped(numbers), "node": ids.offset, "step": ids.step, "first": grouped(first)}
        notes.append(template % values)
        if spec.kind == "template" and ":scramble" in spec.source:
            notes.append(
                _("Sites that share the numbers need the same scramble key: declare the rule in RULES with one.")
            )
    if spec.kind == "template" and rule.max_names > 1 and "{app}" not in spec.source.replace("{{", ""):
        notes.append(_("The ID does not show the application name: IDs of two names can be equal."))
    if spec.gapless:
        notes.append(
            _(
                "Gapless: a number is taken inside the caller's transaction and returned if the transaction is rolled "
                "back. Callers wait for one another, and only Python code can request IDs."
            )
        )
    return notes


def _per(reset: Reset) -> str:
    if reset.never:
        return _("in total, because the rule never resets")
    if reset.calendar:
        return _("each month") if reset.calendar == "month" else _("each year")
    periods = {60: _("each minute"), 3600: _("each hour"), DAY_SECONDS: _("each day"), WEEK_SECONDS: _("each week")}
    return periods.get(reset.seconds) or _("in each %(seconds)s s") % {"seconds": grouped(reset.seconds)}
