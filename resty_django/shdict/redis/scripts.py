"""The Lua scripts of the Redis engine, one per call."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from resty_django.redis import Script

LUA: Final = Path(__file__).parent / "lua"


def _script(name: str) -> Script:
    return Script(LUA / "item.lua", LUA / f"{name}.lua")


ADD: Final = _script("add")
DELETE: Final = _script("delete")
EXPIRE: Final = _script("expire")
FLUSH: Final = _script("flush")
FREE: Final = _script("free")
GET: Final = _script("get")
INCR: Final = _script("incr")
LIVE: Final = _script("live")
LLEN: Final = _script("llen")
LOOK: Final = _script("look")
POP: Final = _script("pop")
PUSH: Final = _script("push")
REPLACE: Final = _script("replace")
SET: Final = _script("set")
SWAP: Final = _script("swap")
TTL: Final = _script("ttl")
