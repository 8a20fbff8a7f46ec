"""The page of the core describes all commands, options and events."""

from __future__ import annotations

import re

from resty_django.qless.core import source
from tests.docs_reader import page

from .test_contract import COMMANDS

PAGE = "docs/reference/jobs/core.md"


def test_the_page_describes_all_commands() -> None:
    documented: set[str] = set()
    for table in re.findall(r"^\| command \|.*\n(?:\|.*\n)+", page(PAGE).text, re.MULTILINE):
        for row in table.splitlines()[2:]:
            documented |= set(re.findall(r"`([\w.]+)`", row.split("|")[1]))
    assert documented == COMMANDS


def test_the_page_describes_all_options() -> None:
    documented = {
        name for row in page(PAGE).table("option", "default", "meaning") for name in re.findall(r"`([^`]+)`", row[0])
    }
    used = set(
        re.findall(
            r"'((?:[a-z]+-)?(?:heartbeat|grace-period|max-[a-z-]+|[a-z]+-history[a-z-]*|server-time|fixes))'", source()
        )
    )
    assert used - documented - {"-heartbeat"} == set()
    assert {"<queue>-heartbeat", "<queue>-max-concurrency"} <= documented


def test_the_page_describes_all_events() -> None:
    sent = set(re.findall(r'"event":"(\w+)"', source()))
    rows = page(PAGE).table("channel", "payload", "sent")
    documented = {name for row in rows if "`event`" in row[1] for name in re.findall(r"`(\w+)`", row[1])}
    assert documented - {"event", "id"} == sent
