"""A process that kills itself between two steps of the outbox.

    python -m tests.integration.qless.outbox.victim '{"point": "sent", "passes": 3, "seconds": 1}' sell 0 100
    python -m tests.integration.qless.outbox.victim '{"seconds": 1}' manage qless_outbox

`sell` accepts orders (rows of `auth.Group`, which each site has), `manage` is a command of `manage.py`. `point`: a name
in `POINTS`, which is passed `passes` times. `seconds`: the length of claims, and the time for which entries are left to
their process, 60 by default.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

POINTS: Final = {
    "row": ("OutboxEntry.save", True, "the row is written, and not committed"),
    "commit": ("Outbox.deliver", False, "the row is committed"),
    "claim": ("Deliverer.claim", True, "rows are claimed"),
    "put": ("Connection.send_packed_command", True, "commands are on their way to the server, which may run them"),
    "sent": ("Deliverer.send", True, "the server has carried out the commands"),
    "mark": ("Deliverer.mark", False, "rows are about to be marked"),
    "marked": ("Deliverer.mark", True, "rows are marked, and claims are not released yet"),
}
"""By name the method at whose beginning, or end (True), the process dies; and what has happened until then."""


def sell(first: int, end: int, pause: float = 0.0) -> None:
    """Accept the orders of a range that are not accepted yet, with their jobs; every tenth is rolled back.

    `pause`: seconds before each order.
    """
    from django.contrib.auth.models import Group
    from django.db import transaction

    from resty_django.qless import chain
    from tests.integration.qless.outbox.orders import book, notify, ship

    accepted = {int(name) for name in Group.objects.values_list("name", flat=True)}
    for order in range(first, end):
        if order in accepted:
            continue
        time.sleep(pause)
        try:
            with transaction.atomic():
                Group.objects.create(name=str(order))
                booked = book.delay(order)
                if order % 3 == 0:
                    chain(ship.si(order, 1), ship.si(order, 2)).delay()
                if order % 4 == 0:
                    notify.apply_async((order,), depends=[booked.id])
                if order % 10 == 0:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass


def jobs_of(order: int) -> set[tuple[str, int, int]]:
    """Return what `sell` enqueues for an order that is accepted: function, order, and part."""
    jobs = {("book", order, 0)}
    if order % 3 == 0:
        jobs |= {("ship", order, 1), ("ship", order, 2)}
    if order % 4 == 0:
        jobs.add(("notify", order, 0))
    return jobs


def _methods() -> dict[str, tuple[Any, str]]:
    import redis.connection

    from resty_django.qless.models import OutboxEntry
    from resty_django.qless.outbox.delivery import Deliverer
    from resty_django.qless.outbox.outbox import Outbox

    classes = {
        **{kind.__name__: kind for kind in (OutboxEntry, Outbox, Deliverer)},
        "Connection": redis.connection.AbstractConnection,
    }
    return {
        point: (classes[method.partition(".")[0]], method.partition(".")[2]) for point, (method, *_) in POINTS.items()
    }


def die_at(point: str, passes: int) -> None:
    """Let this process die by SIGKILL when it passes a point for this number of times."""
    owner, name = _methods()[point]
    method, is_after, left = getattr(owner, name), POINTS[point][1], passes

    def passes_point(args: tuple[Any, ...], result: Any) -> bool:
        if point == "put":
            return b"once" in b"".join(args[0])
        return point != "claim" or bool(result)

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal left
        result = method(self, *args, **kwargs) if is_after else None
        left -= passes_point(args, result)
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result if is_after else method(self, *args, **kwargs)

    setattr(owner, name, wrapper)


def shorten(seconds: float) -> None:
    """Shorten the times after which others go on, so that processes often get in each other's way."""
    from resty_django.qless.outbox import delivery, entries, outbox, runner

    outbox.MARKS_PER_UPDATE = 5  # type: ignore[misc]

    delivery.LEASE_SECONDS = delivery.MAX_BACKOFF_SECONDS = entries.OWNER_GRACE_SECONDS = seconds  # type: ignore[misc]
    delivery.MAX_ENTRIES = 20  # type: ignore[misc]
    runner.PASS_SECONDS = 0.2  # type: ignore[misc]
    runner.OutboxRunner.max_retry_seconds = 0.5


def main(options: str, kind: str, *arguments: str) -> None:
    import django

    django.setup()
    settings: dict[str, Any] = json.loads(options)
    shorten(settings.get("seconds", 60.0))
    if "point" in settings:
        die_at(settings["point"], settings["passes"])
    actions: dict[str, Callable[[], None]] = {
        "sell": lambda: sell(*map(int, arguments[:2]), *map(float, arguments[2:])),
        "manage": lambda: _manage(arguments),
    }
    actions[kind]()


def _manage(arguments: tuple[str, ...]) -> None:
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
