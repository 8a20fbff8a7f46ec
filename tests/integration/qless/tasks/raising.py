"""Functions that raise, in a module of the site."""

from __future__ import annotations

import json


def parse(depth: int) -> int:
    return parse(depth - 1) if depth else decoded('{"rows": "many"}')["rows"]


def decoded(text: str) -> dict[str, int]:
    return json.loads(text, object_hook=lambda row: {key: int(value) for key, value in row.items()})  # type: ignore[no-any-return]
