"""Runs a small action in all processes of the site and collects their replies, for the page that explains the parts.

An event carries the action to the processes. Each of them adds its reply to a list in a shared dictionary.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from resty_django.events import event_list, on_event, post
from resty_django.shdict import Update, shdicts
from resty_django.txid import txid

KEPT_SECONDS: Final = 3600
"""Seconds for which replies are kept."""
COUNT: Final = "demo:count"
PROCESSES: Final = "demo:processes"
"""The number of processes that have replied to the latest request."""
PRODUCT: Final = "demo:product"
SOURCE_SECONDS: Final = 0.2
"""Duration of a call of the slow source behind the cache."""
NAMES: Final = {"runidserver": "ID server", "runqless": "worker"}
"""The processes of the demo, by a word of their command lines. All others serve pages."""

demo = event_list("demo", "run")


class Reply(NamedTuple):
    """The result of the action in one process."""

    process: str
    pid: int
    result: dict[str, Any]

    @property
    def duration(self) -> str:
        return f"{1000 * self.result['seconds']:.2f} ms"


def process_name() -> str:
    return next((name for word, name in NAMES.items() if word in sys.argv), "web site")


def _greet() -> dict[str, Any]:
    return {}


def _add() -> dict[str, Any]:
    return {"count": shdicts["default"].incr(COUNT, 1, init=0)}


def _read() -> dict[str, Any]:
    return {"count": shdicts["default"].get(COUNT)}


def _look_up() -> dict[str, Any]:
    from resty_django.cache import mlcaches  # processes start without the cache

    began = time.perf_counter()
    hit = mlcaches["default"].lookup(PRODUCT, _load_product, ttl=600)
    return {"level": hit.level.name, "seconds": time.perf_counter() - began, "value": hit.value}


def _load_product() -> str:
    """Return a value from a slow source."""
    time.sleep(SOURCE_SECONDS)
    return f"Tea, loaded by the {process_name()} (process {os.getpid()})"


ACTIONS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "greet": _greet,
    "add": _add,
    "read": _read,
    "look_up": _look_up,
}


def ask(action: str) -> str:
    """Ask all processes to run an action, and return the ID of the request for their replies."""
    request_id = txid()
    post(demo.source, demo.run, {"action": action, "request": request_id})
    return request_id


@on_event(demo.source, demo.run)
def run(data: dict[str, str], event: str, source: str, pid: int | None) -> None:
    """Run the action of an event in this process, and add the result to the replies."""
    reply = [process_name(), os.getpid(), ACTIONS[data["action"]]()]
    shdicts["default"].update(
        _key(data["request"]), lambda earlier: Update([*(earlier or ()), reply], ttl=KEPT_SECONDS)
    )


def replies(request_id: str) -> list[Reply]:
    """Return the replies that have arrived, sorted by process. Raise `SharedDictError`."""
    return sorted((Reply(*reply) for reply in shdicts["default"].get(_key(request_id)) or ()), key=lambda r: r[:2])


def wait(request_id: str, seconds: float = 1.0) -> None:
    """Wait until as many processes have replied as last time, at most the given time."""
    expected = shdicts["default"].get(PROCESSES) or sys.maxsize
    deadline = time.monotonic() + seconds
    while (count := len(replies(request_id))) < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    shdicts["default"].set(PROCESSES, count, ttl=KEPT_SECONDS)


def _key(request_id: str) -> str:
    return f"demo:replies:{request_id}"
