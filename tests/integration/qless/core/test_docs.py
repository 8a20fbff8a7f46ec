"""The page of the core describes all events, the head comments of the Lua files all commands, the code all options."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from resty_django.qless.admin.options import CORE_OPTIONS, QUEUE_OPTIONS
from resty_django.qless.core import SCRIPT_FILES, source
from tests.docs_reader import page

from .test_contract import COMMANDS

PAGE = "docs/reference/jobs/core.md"
core_commands: Any = importlib.import_module("core_commands")


def described() -> list[Any]:
    """Return the commands that the head comments describe."""
    return [
        command
        for names in core_commands.SUBJECTS.values()
        for name in names
        for command in core_commands.commands_of((core_commands.CORE / f"{name}.lua").read_text())[0]
    ]


def test_head_comments_describe_all_commands() -> None:
    assert {command.name for command in described()} == COMMANDS
    assert [command for command in described() if not command.reply] == []
    files = [name for names in core_commands.SUBJECTS.values() for name in names]
    assert len(set(files)) == len(files)
    assert set(files) <= set(SCRIPT_FILES)


def test_a_head_comment_is_read_as_commands_with_arguments_effect_reply_and_cost() -> None:
    lua = """local prefix = 'ql:'
-- Not a block of commands.

-- Hands out jobs.
--
-- pop  queue worker count
--     [more]
--   Locks jobs
--   for a worker.
--   Reply: JSON list
--   of jobs
-- due
--   Reply: time
-- Cost  O(k) for
--   k jobs
-- A note for readers of the code.
if command == 'pop' then
"""
    pop, due = core_commands.Command("pop", "queue worker count [more]"), core_commands.Command("due", "")
    pop.effect, pop.reply, due.reply = ["Locks jobs", "for a worker."], ["JSON list", "of jobs"], ["time"]
    assert core_commands.commands_of(lua) == ([pop, due], "O(k) for k jobs")


def test_the_reference_of_commands_has_an_entry_for_each_form(tmp_path: Path) -> None:
    for name in SCRIPT_FILES:
        (tmp_path / f"{name}.lua").write_text("-- pop  queue\n--   Locks jobs.\n--   Reply: JSON\n-- Cost  O(1)\n")
    text = core_commands.commands(tmp_path)
    assert text.count("`pop queue`\n: Locks jobs. *Reply:* JSON.\n") == sum(map(len, core_commands.SUBJECTS.values()))
    assert "**Failures**" in text
    assert "*Cost*\n: `pop`: O(1).\n" in text
    assert core_commands.commands().count("*Reply:*") == len(described())


def test_the_table_of_options_has_all_options_of_the_core() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (?:`([^`]*)`)? ?\| \S.*\. \|$", core_commands.options(), re.MULTILINE)
    used = set(
        re.findall(
            r"'((?:[a-z]+-)?(?:heartbeat|grace-period|max-[a-z-]+|[a-z]+-history[a-z-]*|server-time|fixes))'", source()
        )
    )
    assert used - dict(rows).keys() - {"-heartbeat"} == set()
    assert dict(rows).keys() == {*CORE_OPTIONS, *(f"<queue>{suffix}" for suffix in QUEUE_OPTIONS)}
    assert dict(rows)["heartbeat"] == "60"


def test_the_page_describes_all_events() -> None:
    sent = set(re.findall(r'"event":"(\w+)"', source()))
    rows = page(PAGE).table("channel", "payload", "sent")
    documented = {name for row in rows if "`event`" in row[1] for name in re.findall(r"`(\w+)`", row[1])}
    assert documented - {"event", "id"} == sent
