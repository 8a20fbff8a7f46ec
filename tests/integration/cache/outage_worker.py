"""A process that reads from a cache all the time, and reports for each line of its input; see `test_outage_soak`."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

KEYS = 50
PAUSE = 0.004


class Asker:
    """Reads keys in turn. A value is the time at which it was loaded, so its age is known."""

    def __init__(self, folder: str) -> None:
        from resty_django.cache import MLCache

        self.cache = MLCache("soak", ttl=2, stale_if_outage=3, outage_ttl=1, lru_size=1000)
        self.kept = MLCache("kept", ttl=0, lru_size=10)
        self.version = Path(folder) / "version"
        self.number = 0
        self.reset()

    def reset(self) -> None:
        self.started = time.monotonic()
        self.requests = self.runs = self.slow = 0
        self.oldest = self.longest = 0.0
        self.errors: list[str] = []

    def source(self) -> float:
        self.runs += 1
        return time.monotonic()

    async def asource(self) -> float:
        return self.source()

    def note(self, began: float, loaded: float) -> None:
        now = time.monotonic()
        self.requests += 1
        self.oldest = max(self.oldest, now - loaded)
        self.longest = max(self.longest, now - began)
        self.slow += now - began > 0.2

    def next_key(self) -> str:
        self.number += 1
        return f"key {self.number % KEYS}"

    def ask(self) -> None:
        began = time.monotonic()
        try:
            self.note(began, self.cache.get(self.next_key(), self.source))
        except Exception as error:
            self.errors.append(repr(error))
        time.sleep(PAUSE)

    async def aask(self) -> None:
        began = time.monotonic()
        try:
            self.note(began, await self.cache.aget(self.next_key(), self.asource))
        except Exception as error:
            self.errors.append(repr(error))
        await asyncio.sleep(PAUSE)

    def obey(self, command: str) -> None:
        if command == "report":
            figures: dict[str, Any] = {
                name: getattr(self, name) for name in ("requests", "runs", "slow", "oldest", "longest")
            }
            seconds = time.monotonic() - self.started
            say("report", {**figures, "errors": self.errors[:3], "failed": len(self.errors), "seconds": seconds})
            self.reset()
        elif command == "delete":
            self.kept.delete("version")
            say("deleted")
        else:
            say("version", self.kept.get("version", self.version.read_text))


def say(*what: Any) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())


def main(kind: str, folder: str) -> None:
    import django
    from django.conf import settings
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    site = json.loads(os.environ["RESTY_WORKER_SITE"])
    site["CACHES"]["default"]["OPTIONS"]["SENTINEL_KWARGS"]["retry"] = Retry(NoBackoff(), 0)
    settings.configure(INSTALLED_APPS=["resty_django", "resty_django.cache"], **site)
    django.setup()
    from resty_django import events

    events.start()
    asker = Asker(folder)
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            commands.put(line.strip())
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    say("ready")

    async def loop() -> None:
        while True:
            await asker.aask()
            while not commands.empty():
                await asyncio.to_thread(asker.obey, commands.get())

    if kind == "async":
        asyncio.run(loop())
    while True:
        asker.ask()
        while not commands.empty():
            asker.obey(commands.get())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
