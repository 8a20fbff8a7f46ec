"""The reference of the core: its commands, from the head comments of its Lua files, and its options.

A comment block that describes commands has this form; text before its first command and after its cost is only for
readers of the code:

    -- pop  queue worker count
    --   Locks jobs for a worker.
    --   Reply: JSON list of jobs
    -- Cost  O(k log n) for k jobs

A line of arguments continues on lines with five blanks. `:::{core-commands}` puts the commands on a page,
`:::{core-options}` the options with the texts of the admin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import reference

CORE: Final = Path(__file__).parents[2] / "resty_django" / "qless" / "core"
SUBJECTS: Final = {
    "Jobs in and out": ("put", "prologue", "pop", "transfer_lock", "complete", "fail", "cancel"),
    "Inspecting jobs": ("jobs", "track"),
    "Failures": ("failures",),
    "Queues": ("queues", "figures"),
    "Workers and configuration": ("workers", "alive", "reports"),
    "Recurring jobs": ("recur",),
    "Outcomes and groups": ("groups",),
    "Index of jobs": ("index",),
}
"""The subjects of the reference, and the Lua files of each."""

_BLOCK = re.compile(r"(?:^--.*\n)+", re.MULTILINE)
_COMMAND = re.compile(r"([a-z.]+)(?:  (.*))?")


@dataclass
class Command:
    """A form of a command: its arguments, effect and reply."""

    name: str
    arguments: str
    effect: list[str] = field(default_factory=list)
    reply: list[str] = field(default_factory=list)


def commands_of(lua: str) -> tuple[list[Command], str]:
    """Return the commands that a Lua file describes, and their cost."""
    for block in _BLOCK.findall(lua):
        described, _, cost = block.partition("\n-- Cost  ")
        if cost:
            first, *more = cost.splitlines()
            lines = [first, *(line.removeprefix("--   ") for line in more if line.startswith("--   "))]
            return list(_parse(described.splitlines())), " ".join(lines)
    return [], ""


def _parse(lines: list[str]) -> Iterator[Command]:
    command, text = None, []
    for line in lines:
        if head := _COMMAND.fullmatch(line.removeprefix("-- ")):
            if command is not None:
                yield command
            command = Command(head[1], head[2] or "")
            text = command.effect
        elif command is None:
            continue
        elif line.startswith("--     "):
            command.arguments += " " + line.removeprefix("--     ")
        else:
            words = line.removeprefix("--   ")
            text = command.reply if words.startswith("Reply: ") else text
            text.append(words.removeprefix("Reply: "))
    if command is not None:
        yield command


def commands(folder: Path = CORE) -> str:
    """Return the reference of all commands in `folder` as Markdown with definition lists."""
    parts = []
    for subject, names in SUBJECTS.items():
        parts.append(f"**{subject}**")
        costs = []
        for name in names:
            described, cost = commands_of((folder / f"{name}.lua").read_text())
            costs.append(", ".join(f"`{known}`" for known in dict.fromkeys(c.name for c in described)) + f": {cost}.")
            for command in described:
                effect = " ".join(command.effect)
                reply = f"*Reply:* {' '.join(command.reply)}."
                parts.append(f"`{f'{command.name} {command.arguments}'.strip()}`\n: {f'{effect} {reply}'.strip()}")
        parts.append("*Cost*\n: " + " ".join(costs))
    return "\n\n".join(parts) + "\n"


def options() -> str:
    """Return the table of the core's options as Markdown."""
    from resty_django.qless.admin.options import CORE_OPTIONS, QUEUE_OPTIONS

    specs = {**CORE_OPTIONS, **{f"<queue>{suffix}": spec for suffix, spec in QUEUE_OPTIONS.items()}}
    rows = []
    for name, spec in specs.items():
        default = f"`{spec.default}`" if spec.default else ""
        rows.append(f"| `{name}` | {default} | {str(spec.meaning).replace('*', chr(92) + '*')} |")
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"


def setup(app: Any) -> dict[str, bool]:
    """Add the directives. They need MyST's extension for definition lists."""
    app.add_directive("core-commands", reference.directive(lambda _: commands()))
    app.add_directive("core-options", reference.directive(lambda _: options()))
    return {"parallel_read_safe": True}
