"""id_server's configuration file and the scripts that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_STEP = 127
"""id_server stores the step in 8 signed bits: a greater value wraps around, and its counters run backwards."""
MAX_BATCH = 10_000

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


class Refused(Exception):
    """The import is not possible. The message says why, and what to change."""


@dataclass(frozen=True)
class IdServerRule:
    """A rule of the configuration. `segment_size` is its batch_save, limited as in id_server."""

    name: str
    path: Path
    script: str
    segment_size: int


@dataclass(frozen=True)
class Config:
    """The relevant parts of a configuration. `database` describes the server that has the table, for messages."""

    step: int
    offset: int
    rules: tuple[IdServerRule, ...]
    database: str


def read_config(path: Path, lua_dir: Path | None = None) -> Config:
    """Read a configuration file. Raise Refused if it, or one of its scripts, is missing or not valid.

    `rules` can be an array of objects with name, lua_file and batch_save, or an object of rules by name, each an object
    with lua_file and batch_save, or just the path. Like id_server, ignore comments and text after the closing brace.
    Relative paths of scripts start at `lua_dir`; without it, at the file's folder or else at the folder above.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}") from error
    fields = _decoded(path, text)
    step, offset = _whole(fields, "id_step", path), _whole(fields, "id_offset", path)
    if step > MAX_STEP:
        raise Refused(
            f"{path}: id_step is {step}. id_server keeps it in 8 signed bits and counts in steps of "
            f"{(step + 128) % 256 - 128}, so its counters cannot be interpreted. The maximum is {MAX_STEP}."
        )
    if step < 1 or not 0 <= offset < step:
        raise Refused(f"{path}: id_step is {step} and id_offset {offset}. They must fit 0 <= id_offset < id_step.")
    folders = [lua_dir] if lua_dir is not None else [path.parent, path.parent.parent]
    rules = tuple(_rule(path, name, entry, folders) for name, entry in _entries(path, fields))
    names = [rule.name for rule in rules]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refused(f"{path}: rules has {twice!r} more than once. Keep one of them.")
    return Config(step, offset, rules, _database(fields.get("database")))


def _decoded(path: Path, text: str) -> dict[str, Any]:
    plain = _COMMENT.sub(lambda match: match[1] or " ", text.removeprefix("\ufeff")).lstrip()
    try:
        fields, _ = json.JSONDecoder().raw_decode(plain)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Refused(f"{path} does not contain a JSON object.")
    return fields


def _whole(fields: dict[str, Any], key: str, path: Path) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{path}: {key} is {'missing' if key not in fields else 'not a whole number'}.")
    return value


def _entries(path: Path, fields: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    rules = fields.get("rules")
    if isinstance(rules, dict):
        yield from rules.items()
    elif isinstance(rules, list):
        for entry in rules:
            yield entry.get("name") if isinstance(entry, dict) else None, entry
    else:
        raise Refused(f"{path}: rules is {'missing' if 'rules' not in fields else 'neither an array nor an object'}.")


def _rule(path: Path, name: Any, entry: Any, folders: list[Path]) -> IdServerRule:
    if isinstance(entry, str):
        entry = {"lua_file": entry}
    if not isinstance(name, str) or not name:
        raise Refused(f"{path}: a rule has no name.")
    if not isinstance(entry, dict) or not isinstance(entry.get("lua_file"), str) or not entry["lua_file"]:
        raise Refused(f"{path}: rule {name} has no lua_file.")
    batch = entry.get("batch_save", 1)
    if isinstance(batch, bool) or not isinstance(batch, int):
        raise Refused(f"{path}: batch_save of rule {name} is not a whole number.")
    script = _script(name, entry["lua_file"], folders)
    return IdServerRule(name, script, _text(name, script), min(max(batch, 1), MAX_BATCH))


def _script(name: str, value: str, folders: list[Path]) -> Path:
    tried = [folder / value for folder in folders]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    raise Refused(
        f"Rule {name}: the script is missing; tried {' and '.join(map(str, tried))}. Use --lua-dir to name the folder "
        "in which id_server was started."
    )


def _text(name: str, script: Path) -> str:
    try:
        text = script.read_bytes().decode()
    except OSError as error:
        raise Refused(f"Rule {name}: {script} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise Refused(
            f"Rule {name}: {script} is not UTF-8 (byte {error.start}). Convert it, for example with iconv -t utf-8."
        ) from error
    if "\0" in text:
        raise Refused(f"Rule {name}: {script} contains a NUL byte. It must be the source of a script.")
    return text


def _database(options: Any) -> str:
    """Return the location of the table, for messages; `host` can be a name, an address or the path of a socket."""
    if not isinstance(options, dict):
        return ""
    host, name = str(options.get("host", "")), options.get("dbname", "")
    where = host if "/" in host else f"{host}:{options.get('port', 3306)}"
    return f"database {name} of user {options.get('user', '')} at {where}"
