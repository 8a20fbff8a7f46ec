"""Calls for asyncio that are cancelled in the midst."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from resty_django.cache.storage import shielding


async def settle(check: Any) -> None:
    until = time.monotonic() + 20
    while not check():
        assert time.monotonic() < until
        await asyncio.sleep(0.005)


class Slow:
    """Puts a wait behind a call for asyncio: what it does is done, and the caller does not know yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: object, name: str) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self._call = getattr(target, name)
        monkeypatch.setattr(target, name, self)

    async def __call__(self, *args: Any) -> Any:
        result = await self._call(*args)
        self.reached.set()
        await self.go.wait()
        return result


async def cancelled(call: Any, slow: Slow, lets_go: bool) -> None:
    """Cancel a call in the midst. `lets_go`: the rest may end; else the loop ends before."""
    task = asyncio.ensure_future(call)
    await asyncio.wait_for(slow.reached.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if lets_go:
        slow.go.set()
    else:
        for task in shielding.tasks:
            task.cancel()
    await settle(lambda: not shielding.tasks)
