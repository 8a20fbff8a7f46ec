"""One worker process, from its start to its exit code."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

from resty_django import events

from ..clients import Client
from ..default import default_client
from ..schedule import Scheduler
from .desk import Desk
from .listener import Listener
from .options import Options
from .pool import Pool

log = logging.getLogger("resty_django.qless.worker")

STOP, QUIT, NOW, PAUSE, RESUME = b"S", b"Q", b"N", b"P", b"R"
"""What the parent writes: stop within the grace time, stop after the jobs, stop now, reserve no more, go on."""
REPORTS: Final = 0.5
"""Seconds between two reports to the parent."""


def serve(options: Options, commands: int, reports: int | None, *, paused: bool = False) -> int:
    """Run jobs until told to stop; the exit code. `commands`, `reports`: file descriptors of the parent's pipes."""
    client = default_client()
    client.worker_name = f"{options.name}-{os.getpid()}"
    desk, listener = build(client, options)
    desk.paused = paused
    actions = _actions(desk, options)
    _on_signals(desk, actions)
    listener.start()
    scheduler = Scheduler(client, options.queues)
    scheduler.start()
    threading.Thread(target=_obey, args=(commands, desk, actions), name="qless-parent", daemon=True).start()
    if reports is not None:
        threading.Thread(target=_report, args=(reports, desk), name="qless-report", daemon=True).start()
    started = _start_events()
    log.info("worker %s takes jobs of %s", desk.name, ", ".join(options.queues))
    try:
        return desk.run()
    finally:
        scheduler.stop()
        listener.stop()
        if started:
            events.stop()  # this process ends without its exit handlers
        log.info("worker %s has ended: %s", desk.name, dict(desk.held.counts))


def build(client: Client, options: Options) -> tuple[Desk, Listener]:
    """A worker of the client's name, and what tells it of new jobs."""
    make_pool, lost = _pool(options)
    desk = Desk(client, client.worker_name, options, options.make_reserver(), make_pool)
    inbox = desk.inbox
    listener = Listener(
        client,
        options.queues,
        desk.name,
        woken=lambda queue: inbox.put(partial(desk.woken, queue)),
        lost=lost(desk),
        subscribed=lambda: inbox.put(desk.missed),
    )
    desk.again = listener.again
    return desk, listener


def _pool(options: Options) -> tuple[Callable[[Any], Pool], Callable[[Desk], Callable[[str], None]]]:
    """Where jobs run; and what of a desk is called when the server says that the lock of a job is lost."""
    if options.via == "celery":
        from ..celery import hand_over

        return hand_over, lambda desk: desk.pool.taken
    return Pool, lambda desk: lambda jid: desk.inbox.put(partial(desk.held.suspect, jid))


def _actions(desk: Desk, options: Options) -> dict[bytes, Callable[[], object]]:
    return {
        STOP: partial(desk.stop, options.grace),
        QUIT: partial(desk.stop, None),
        NOW: partial(desk.stop, 0.0),
        PAUSE: partial(desk.pause, True),
        RESUME: partial(desk.pause, False),
    }


def _on_signals(desk: Desk, actions: dict[bytes, Callable[[], object]]) -> None:
    """For whoever signals this process alone, or a whole group. Ctrl-C reaches the parent too, which then tells."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, action in (
        (signal.SIGTERM, actions[STOP]),
        (signal.SIGQUIT, actions[QUIT]),
        (signal.SIGUSR1, actions[NOW]),
        (signal.SIGUSR2, actions[PAUSE]),
        (signal.SIGCONT, actions[RESUME]),
    ):

        def handler(number: int, frame: FrameType | None, action: Callable[[], object] = action) -> None:
            desk.inbox.put(action)

        signal.signal(number, handler)


def _obey(commands: int, desk: Desk, actions: dict[bytes, Callable[[], object]]) -> None:
    while told := os.read(commands, 1):
        desk.inbox.put(actions[told])
    log.warning("the parent of worker %s is gone", desk.name)
    desk.inbox.put(actions[STOP])


def _report(reports: int, desk: Desk) -> None:
    while True:
        line = json.dumps(desk.snapshot()).encode() + b"\n"
        try:
            os.write(reports, line)
        except OSError:
            return
        time.sleep(REPORTS)


def _start_events() -> bool:
    """Hear of the events of other processes, such as what is to be dropped from caches."""
    try:
        events.start(wait=0)
    except Exception as error:  # jobs do not depend on them
        log.warning("events of other processes are not heard: %s", error)
        return False
    return True


__all__ = ["NOW", "PAUSE", "QUIT", "RESUME", "STOP", "build", "serve"]
