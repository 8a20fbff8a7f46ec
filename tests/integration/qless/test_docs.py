"""The page of the core tells all commands, options, fixes and events."""

from __future__ import annotations

import re

from resty_django.qless.core import source
from tests.docs_reader import code, page

from .test_contract import COMMANDS

PAGE = "docs/qless/core.md"


def test_all_commands_are_told() -> None:
    told: set[str] = set()
    for table in re.findall(r"^\| command \|.*\n(?:\|.*\n)+", page(PAGE).text, re.MULTILINE):
        for row in table.splitlines()[2:]:
            told |= set(re.findall(r"`([\w.]+)`", row.split("|")[1]))
    assert told == COMMANDS


def test_all_fixes_are_told_with_what_holds_where_nothing_is_set() -> None:
    text = source()
    used = set(re.findall(r"fixed\('([\w-]+)'\)", text))
    match = re.search(r"local FIXED = '([^']+)'", text)
    assert match
    rows = page(PAGE).table("name", "where nothing is set", "the original", "mended")
    assert {code(row[0]) for row in rows} == used
    assert {code(row[0]) for row in rows if row[1] == "mended"} == set(match[1].split())


def test_all_options_are_told() -> None:
    told = {
        name for row in page(PAGE).table("option", "default", "meaning") for name in re.findall(r"`([^`]+)`", row[0])
    }
    used = set(
        re.findall(
            r"'((?:[a-z]+-)?(?:heartbeat|grace-period|max-[a-z-]+|[a-z]+-history[a-z-]*|server-time|fixes))'", source()
        )
    )
    assert used - told - {"-heartbeat"} == set()
    assert {"<queue>-heartbeat", "<queue>-max-concurrency"} <= told


def test_all_events_are_told() -> None:
    sent = set(re.findall(r'"event":"(\w+)"', source()))
    told = set(re.findall(r"`(\w+)`", next(row[1] for row in page(PAGE).table("channel", "payload", "sent"))))
    assert told - {"event"} == sent
