"""A process that uses a quota: `quota_worker.py WHAT LIMIT`. It prints a JSON list for each thing that happens.

Private names: `_reserve` is where the process stops to be killed, between its reservation and its block.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import django
from django.conf import settings

NOW = 1_783_512_000.0
"""8 July 2026, 12:00 UTC. The clock stands still, so that no period ends in a test."""


def say(*what: Any) -> None:
    os.write(1, (json.dumps(what) + "\n").encode())


def quota(limit: int) -> Any:
    from resty_django.limits import Quota

    return Quota("exports", limit, per="month", timezone="UTC", clock=lambda: NOW, on_error="raise")


def use(limit: int) -> None:
    """Use the quota until it refuses, and say each unit that passed."""
    exports = quota(limit)
    say("ready")
    sys.stdin.readline()
    while exports.use("k"):
        say("passed")
    say("refused")


def step(limit: int) -> None:
    """Use one unit for each line of the standard input."""
    exports = quota(limit)
    say("ready")
    while sys.stdin.readline():
        say("passed" if exports.use("k") else "refused")


def stop(limit: int) -> None:
    """Reserve a block, and wait for the end before it reaches the store."""
    exports = quota(limit)
    reserve = exports._reserve

    def reserve_and_stop(*args: Any) -> Any:
        reservation = reserve(*args)
        say("reserved", reservation.units)
        threading.Event().wait()
        return reservation

    exports._reserve = reserve_and_stop
    exports.use("k")


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    for name, value in json.loads(os.environ["RESTY_WORKER_SITE"]).items():
        setattr(settings, name, value)
    django.setup()
    {"use": use, "step": step, "stop": stop}[sys.argv[1]](int(sys.argv[2]))
