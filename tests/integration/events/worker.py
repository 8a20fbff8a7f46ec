"""A process that listens for events and prints a JSON list for each thing that happens. `main` lists its commands."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
import warnings
from typing import Any


def say(*what: Any) -> None:
    """Print at once, in one piece."""
    os.write(1, (json.dumps(what) + "\n").encode())


def hear(who: str = "heard") -> Any:
    """A handler that prints its arguments."""

    def handler(data: Any, event: str, source: str, pid: int | None) -> None:
        say(who, event, data)

    return handler


def until_end_of_input() -> None:
    sys.stdin.read()


def listen(**options: Any) -> None:
    """Print every event until the end of the standard input."""
    from resty_django import events

    events.register(hear())
    if options:
        events.configure(**options)
    else:
        events.start()
    say("ready", os.getpid())
    until_end_of_input()


def alisten() -> None:
    """Do the same in an event loop, with a coroutine function."""
    from resty_django import events

    async def heard(data: Any, event: str, source: str, pid: int | None) -> None:
        await asyncio.sleep(0)
        say("heard", event, data, threading.current_thread() is threading.main_thread())

    async def main() -> None:
        events.register(heard)
        events.register(lambda *event_args: say("thread", threading.current_thread().name), "s")
        await events.astart()
        while not events.configured():
            await asyncio.sleep(0.001)
        say("ready", os.getpid())
        await asyncio.to_thread(until_end_of_input)

    asyncio.run(main())


def chatter(count: int, seed: int) -> None:
    """Print every event, and post some in between and print them. Then keep listening."""
    from resty_django import events

    events.register(hear())
    events.start()
    say("ready", os.getpid())
    chance = random.Random(seed)
    for number in range(count):
        say("posting", number)
        events.post("s", "chat", [os.getpid(), number, "x" * chance.randrange(200)])
        say("posted", number)
        time.sleep(chance.random() * 0.004)
    say("through")
    until_end_of_input()


def fork(children: int) -> None:
    """Fork while listening; print the events that the children receive without any call."""
    from resty_django import events

    events.on_event()(hear(f"declared {os.getpid()}"))
    events.register(lambda *event_args: say("registered", os.getpid()), "s")
    who = {"name": "parent"}

    @events.on_event("s")
    def told(data: Any, event: str, source: str, pid: int | None) -> None:
        say(who["name"], data)
        if (who["name"], data) == ("child0", "of the parent"):
            events.post("s", "e", "of the child")

    if children:
        events.start()
    pids = []
    parent = os.getpid()
    for child in range(max(children, 1)):
        with warnings.catch_warnings():
            # Python 3.12+ warns of any fork with threads about: that it is safe here is what the test is for.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            who["name"] = f"child{child}"
            say("forked", child, events.running())
            while os.getppid() == parent:  # which ends it, or is ended
                time.sleep(0.01)
            os._exit(0)
        pids.append(pid)
    say("ready", os.getpid())
    for line in sys.stdin:
        events.post("s", "e", line.strip())
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


class SlowImports:
    """Delays each import of an engine."""

    def find_spec(self, name: str, *args: Any) -> None:
        if name.startswith("resty_django.shdict."):
            say("importing", name)
            time.sleep(0.1)


def fork_at_once() -> None:
    """Fork while the thread that is to listen imports what it needs."""
    from resty_django import events, shdict

    assert "resty_django.shdict.lmdb" not in sys.modules, shdict
    assert "resty_django.shdict.redis" not in sys.modules
    sys.meta_path.insert(0, SlowImports())  # type: ignore[arg-type]
    events.start(wait=0)
    time.sleep(0.1)
    pid = os.fork()
    if not pid:
        events.post("s", "e")
        say("posted")
        os._exit(0)
    say("forked", os.waitpid(pid, 0)[1])


def main(what: str, options: dict[str, Any]) -> None:
    import django
    from django.conf import settings

    settings.configure(INSTALLED_APPS=["resty_django"], **json.loads(os.environ["RESTY_WORKER_SITE"]))
    django.setup()
    {"listen": listen, "alisten": alisten, "chatter": chatter, "fork": fork, "fork_at_once": fork_at_once}[what](
        **options
    )


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
