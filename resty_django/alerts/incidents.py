"""Incidents: from the values of a rule to the messages about their beginning and their end. Pure; the caller has the
clock and the store.

Times are epoch seconds. A state is stored as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from .readings import Reading
from .rules import Rule

WINDOW: Final = 60.0
"""Seconds over which the increase of a counter is measured, or longer if it is read less often."""
MOST_ACTIVE: Final = 200
MOST_PAST: Final = 100
MOST_MESSAGES: Final = 200
CLAIM: Final = 600.0
"""Seconds after which a message is sent by another process, if the process that sends it has not finished."""
FIRST_RETRY: Final = 30.0
LONGEST_RETRY: Final = 600.0
LONGEST_SUBJECT: Final = 200

Channel: TypeAlias = Literal["mail", "call"]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning (`state` is `"firing"`) or the end (`"resolved"`) of an incident.

    `rule`: the name of the rule. `subject`: the queue, rule, limit, ... with this value; "" if there is only one.
    `value`: the value when the incident began or ended, None if there is none any more. `since`: when it began; `at`:
    when its state changed.
    """

    rule: str
    title: str
    subject: str
    state: Literal["firing", "resolved"]
    value: float | None
    threshold: float
    is_above: bool
    unit: str
    since: float
    at: float


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that holds, since `since`. `fired`: when it became an alert; `resolved`: when it ended."""

    rule: str
    title: str
    subject: str
    value: float
    threshold: float
    is_above: bool
    unit: str
    since: float
    fired: float | None = None
    resolved: float | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Notices to be sent together. `due`: when to send them; `claimed`: when a process began to send them."""

    id: int
    channel: Channel
    notices: tuple[Notice, ...]
    due: float
    claimed: float | None = None
    attempts: int = 0
    error: str = ""


Point: TypeAlias = tuple[float, float, float]
"""A counter at a time: time, value, and sum of all increases."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about incidents. `past` begins with the newest. `points`: by rule and subject."""

    evaluated: float = 0.0
    active: tuple[Incident, ...] = ()
    past: tuple[Incident, ...] = ()
    points: dict[str, dict[str, tuple[Point, ...]]] = {}
    messages: tuple[Message, ...] = ()
    next_id: int = 1


def evaluate(
    state: State, rules: Sequence[Rule], readings: Mapping[str, Reading], now: float, channels: Sequence[Channel]
) -> State:
    """Return the state after new readings, with a message for each channel about what has begun or ended.

    A rule without a reading keeps its incidents. Incidents of removed rules end without a message.
    """
    active = {(incident.rule, incident.subject): incident for incident in state.active}
    past = list(state.past)
    points: dict[str, dict[str, tuple[Point, ...]]] = {}
    notices: list[Notice] = []
    for rule in rules:
        reading = readings.get(rule.name)
        if reading is None:
            points[rule.name] = state.points.get(rule.name, {})
            continue
        values = dict(reading.values)
        if reading.is_counter:
            previous = state.points.get(rule.name)
            # A counter that did not exist before has grown from 0.
            start = () if previous is None else ((state.evaluated, 0.0, 0.0),)
            points[rule.name] = {
                subject: _with((previous or {}).get(subject, start), now, count) for subject, count in values.items()
            }
            values = {
                subject: _per_minute(subject_points, now) for subject, subject_points in points[rule.name].items()
            }
        for subject, value in values.items():
            if rule.is_met(value):
                _hold(active, rule, subject[:LONGEST_SUBJECT], value, now, notices)
        met = {subject[:LONGEST_SUBJECT] for subject, value in values.items() if rule.is_met(value)}
        for key, incident in list(active.items()):
            if key[0] == rule.name and key[1] not in met:
                _end(active, past, key, incident, values.get(key[1]), now, notices)
    names = {rule.name for rule in rules}
    for key, incident in list(active.items()):
        if incident.rule not in names:
            _end(active, past, key, incident, None, now, [])
    messages, next_id = _messages(state, notices, now, channels)
    return State(
        evaluated=now,
        active=tuple(active.values()),
        past=tuple(sorted(past, key=lambda incident: -(incident.resolved or 0)))[:MOST_PAST],
        points=points,
        messages=messages,
        next_id=next_id,
    )


def _hold(
    active: dict[tuple[str, str], Incident], rule: Rule, subject: str, value: float, now: float, notices: list[Notice]
) -> None:
    incident = active.get((rule.name, subject))
    if incident is None:
        if len(active) >= MOST_ACTIVE:
            return
        incident = Incident(
            rule=rule.name,
            title=str(rule.title),
            subject=subject,
            value=value,
            threshold=rule.threshold,
            is_above=rule.is_above,
            unit=rule.unit,
            since=now,
        )
    incident = msgspec.structs.replace(incident, value=value, threshold=rule.threshold, is_above=rule.is_above)
    if incident.fired is None and now - incident.since >= rule.duration:
        incident = msgspec.structs.replace(incident, fired=now)
        notices.append(_notice(incident, "firing", value, now))
    active[rule.name, subject] = incident


def _end(
    active: dict[tuple[str, str], Incident],
    past: list[Incident],
    key: tuple[str, str],
    incident: Incident,
    value: float | None,
    now: float,
    notices: list[Notice],
) -> None:
    del active[key]
    if incident.fired is not None:
        past.append(msgspec.structs.replace(incident, resolved=now))
        notices.append(_notice(incident, "resolved", value, now))


def _notice(incident: Incident, state: Literal["firing", "resolved"], value: float | None, now: float) -> Notice:
    return Notice(
        rule=incident.rule,
        title=incident.title,
        subject=incident.subject,
        state=state,
        value=value,
        threshold=incident.threshold,
        is_above=incident.is_above,
        unit=incident.unit,
        since=incident.since,
        at=now,
    )


def _with(points: tuple[Point, ...], now: float, value: float) -> tuple[Point, ...]:
    """Return the points of a counter with a new one; of those before the window, only the last one is kept."""
    if not points:
        return ((now, value, 0.0),)
    _, before, total = points[-1]
    kept = [point for point in points if point[0] > now - WINDOW]
    older = [point for point in points if point[0] <= now - WINDOW]
    increase = value - before if value >= before else value
    return (*older[-1:], *kept, (now, value, total + increase))


def _per_minute(points: tuple[Point, ...], now: float) -> float:
    first, last = points[0], points[-1]
    seconds = max(WINDOW, last[0] - first[0])
    return (last[2] - first[2]) * 60 / seconds


def _messages(
    state: State, notices: Sequence[Notice], now: float, channels: Iterable[Channel]
) -> tuple[tuple[Message, ...], int]:
    """Return the messages with those about the notices: one mail for all, and one call for each."""
    messages, number = list(state.messages), state.next_id
    for channel in channels:
        batches = [tuple(notices)] if channel == "mail" and notices else [(notice,) for notice in notices]
        for batch in batches:
            messages.append(Message(id=number, channel=channel, notices=batch, due=now))
            number += 1
    return tuple(messages[-MOST_MESSAGES:]), number


def claim(state: State, now: float) -> tuple[State, Message | None]:
    """Return the first message that is due, marked so that no other process sends it; None if there is none."""
    for message in state.messages:
        is_free = message.claimed is None or not now - CLAIM < message.claimed <= now
        if is_free and message.due <= now:
            claimed = msgspec.structs.replace(message, claimed=now, attempts=message.attempts + 1)
            return _replaced(state, message.id, claimed), claimed
    return state, None


def finish(state: State, number: int, error: str, now: float) -> State:
    """Return the state after an attempt: without the message, or if there was an error, to be tried again later."""
    message = next((message for message in state.messages if message.id == number), None)
    if message is None:
        return state
    if not error:
        return _replaced(state, number, None)
    pause = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(message.attempts - 1, 10))
    return _replaced(state, number, msgspec.structs.replace(message, claimed=None, due=now + pause, error=error[:500]))


def _replaced(state: State, number: int, message: Message | None) -> State:
    messages = (message if stored.id == number else stored for stored in state.messages)
    return msgspec.structs.replace(state, messages=tuple(stored for stored in messages if stored is not None))
