"""A process that uses policies and prints a JSON list for each event. `main` lists its commands."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from tests.threads import together


def say(*what: Any) -> None:
    """Print at once, in one piece."""
    os.write(1, (json.dumps(what) + "\n").encode())


def until_end_of_input() -> threading.Event:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    return ended


def say_changes(who: str, name: str, look: Callable[[], object]) -> None:
    """Print the result of `look` and the time, now and after each change of the result."""
    from resty_django import events
    from resty_django.limits.policies import registry

    registry.get_policy(name)
    events.start()
    ended = until_end_of_input()
    last: object = "nothing yet"
    while not ended.is_set():
        found = look()
        if found != last:
            say(who, found, time.time())
            last = found
        time.sleep(0.001)


def watch(name: str, who: str = "watch") -> None:
    """Print each limit that the policy has, as a request would find it."""
    from resty_django.limits.policies import registry

    def look() -> object:
        policy = registry.get_policy(name)
        return policy.spec.limit if policy is not None else None

    say_changes(who, name, look)


def override(name: str, key: str) -> None:
    """Print each rate of the override of a key in a policy, as a request would find it."""
    from resty_django.limits.overrides.current import current

    def look() -> object:
        found = current.find(name, key, ("ip",))
        return found.rate if found is not None else None

    say_changes("override", name, look)


def fork(name: str) -> None:
    """Fork after the first use, as under gunicorn with preload; the child watches."""
    from resty_django import events
    from resty_django.limits.policies import registry
    from resty_django.limits.statistics import reporter

    registry.get_policy(name)
    reporter.stats.record(name, "k", allowed())
    events.start()
    with warnings.catch_warnings():
        # Python 3.12+ warns of any fork with threads about: that it is safe here is what the test is for.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        for _ in range(5):
            reporter.stats.record(name, "k", allowed())
        watch(name, "child")
        reporter.stats.flush()
        say("child ended")
        os._exit(0)
    os.waitpid(pid, 0)


def allowed() -> Any:
    from resty_django.limits import Decision

    return Decision(True)


def count(name: str, passed: int, refused: int) -> None:
    """Count decisions from two threads, and end at once: what was counted has to be handed in at the exit."""
    from resty_django.limits import Decision
    from resty_django.limits.statistics import reporter

    def some() -> None:
        for number in range(max(passed, refused)):
            if number < passed:
                reporter.stats.record(name, "k", allowed())
            if number < refused:
                reporter.stats.record(name, f"k{number % 3}", Decision(False))

    together(some, some)
    say("counted")


def main(what: str, options: dict[str, Any]) -> None:
    import django
    from django.conf import settings

    for name, value in json.loads(os.environ["RESTY_WORKER_SITE"]).items():
        setattr(settings, name, value)
    django.setup()
    acts = {
        "watch": watch,
        "override": override,
        "fork": fork,
        "count": count,
    }
    acts[what](**options)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
