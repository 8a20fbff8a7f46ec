"""The Lua scripts of the Redis engine, one per call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from resty_django.redis import Script

from .wire import separated

LUA: Final = Path(__file__).parent / "lua"


def _script(*names: str, listed: Callable[[Any], Sequence[Any]] | None = None) -> Script:
    return Script(LUA / "item.lua", *(LUA / f"{name}.lua" for name in names), listed=listed)


ADD: Final = _script("entry", "add")
APPEND: Final = _script("entry", "append")
DELETE: Final = _script("entry", "delete")
DELETE_MANY: Final = _script("entry", "delete_many")
EXPIRE: Final = _script("expire")
FLUSH: Final = _script("flush")
FREE: Final = _script("free")
GET: Final = _script("get")
GET_MANY: Final = _script("get_many", listed=separated)
INCR: Final = _script("incr")
LIVE: Final = _script("live")
LLEN: Final = _script("llen")
LOOK: Final = _script("look")
POP: Final = _script("pop")
PUSH: Final = _script("push")
REPLACE: Final = _script("replace")
SET: Final = _script("entry", "set")
SET_MANY: Final = _script("entry", "set_many")
SWAP: Final = _script("entry", "swap")
TTL: Final = _script("ttl")
