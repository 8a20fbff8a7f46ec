"""A worker process: its threads, its pipes to the parent, and its signals."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import Any, Final

from resty_django import events
from resty_django.text import logger

from ..clients.client import Client
from ..clients.default import default_client
from ..errors import DuplicateTask
from ..tasks.registry import discover
from ..tasks.schedule import Scheduler
from .executor import Pool
from .exit_codes import CONFIG
from .forks import terminate_forks_at_end
from .heartbeat import process as heartbeat_process
from .heartbeat.liveness import LivenessReporter
from .listener import Listener
from .loop import MAX_JOBS_PER_POP, WorkerLoop
from .options import Options

log = logger("resty_django.qless.worker")

STOP, QUIT, NOW, PAUSE, RESUME = b"S", b"Q", b"N", b"P", b"R"
"""Commands from the parent: stop within the grace period, stop after the jobs, stop now, pause, resume."""
REPORT_INTERVAL: Final = 0.5
"""Seconds between two reports to the parent."""


def serve(
    options: Options, commands: int, reports: int | None, *, paused: bool = False, dead: Iterable[str] = ()
) -> int:
    """Run jobs until the parent or a signal stops them. Return the exit code.

    `commands`, `reports`: file descriptors of the parent's pipes. `dead`: names of workers that have died.
    """
    client = default_client()
    client.worker_name = f"{options.name}-{os.getpid()}"
    shared, heartbeat_pid = heartbeat_process.start(client, client.worker_name, options.concurrency + MAX_JOBS_PER_POP)
    terminate_forks_at_end()  # after starting the heartbeat process, which is stopped separately
    loop, listener = build(client, options)
    loop.in_flight.shared = shared
    loop.paused = paused
    scheduler = Scheduler(client, options.queues)
    try:
        discover()
    except DuplicateTask as error:
        log.error("%s", error)
        heartbeat_process.stop(heartbeat_pid)
        return CONFIG
    actions = _actions(loop, options)
    _handle_signals(loop, actions)
    listener.start()
    scheduler.start()
    liveness = LivenessReporter(client, loop.name, options.queues, dead)
    liveness.start()
    threading.Thread(target=_read_commands, args=(commands, loop, actions), name="qless-parent", daemon=True).start()
    if reports is not None:
        threading.Thread(target=_send_reports, args=(reports, loop), name="qless-report", daemon=True).start()
    started = _start_events()
    log.info("worker %s serves the queues %s", loop.name, ", ".join(options.queues))
    try:
        return loop.run()
    finally:
        scheduler.stop()
        liveness.stop()
        listener.stop()
        if started:
            events.stop()  # this process ends without its exit handlers
        heartbeat_process.stop(heartbeat_pid)
        log.info("worker %s has ended: %s", loop.name, dict(loop.in_flight.counts))


def build(client: Client, options: Options) -> tuple[WorkerLoop, Listener]:
    """Return a worker with the client's name, and the listener that notifies it."""
    make_pool, lock_lost_handler = _pool(options)
    loop = WorkerLoop(client, client.worker_name, options, options.make_reserver(), make_pool)
    inbox = loop.inbox
    listener = Listener(
        client,
        options.queues,
        loop.name,
        on_job_available=lambda queue: inbox.put(partial(loop.on_job_available, queue)),
        on_lock_lost=lock_lost_handler(loop),
        on_reconnect=lambda: inbox.put(loop.on_reconnect),
    )
    loop.before_poll = listener.rearm
    return loop, listener


def _pool(options: Options) -> tuple[Callable[[Any], Pool], Callable[[WorkerLoop], Callable[[str], None]]]:
    """Return the factories of the pool and of the function that is called when the server reports a lost lock."""
    if options.via == "celery":
        from ..integrations.celery import make_dispatcher

        return make_dispatcher, lambda loop: loop.pool.taken
    return Pool, lambda loop: lambda jid: loop.inbox.put(partial(loop.in_flight.verify_lease, jid))


def _actions(loop: WorkerLoop, options: Options) -> dict[bytes, Callable[[], object]]:
    return {
        STOP: partial(loop.stop, options.grace),
        QUIT: partial(loop.stop, None),
        NOW: partial(loop.stop, 0.0),
        PAUSE: partial(loop.pause, True),
        RESUME: partial(loop.pause, False),
    }


def _handle_signals(loop: WorkerLoop, actions: dict[bytes, Callable[[], object]]) -> None:
    """Handle signals sent to this process or its group. Ctrl-C also reaches the parent, which passes it on."""
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
            loop.inbox.put(action)

        signal.signal(number, handler)


def _read_commands(commands: int, loop: WorkerLoop, actions: dict[bytes, Callable[[], object]]) -> None:
    while command := os.read(commands, 1):
        loop.inbox.put(actions[command])
    log.warning("the parent of worker %s is gone", loop.name)
    loop.inbox.put(actions[STOP])


def _send_reports(reports: int, loop: WorkerLoop) -> None:
    while True:
        line = json.dumps(loop.snapshot()).encode() + b"\n"
        try:
            os.write(reports, line)
        except OSError:
            return
        time.sleep(REPORT_INTERVAL)


def _start_events() -> bool:
    """Start receiving events from other processes, such as cache invalidations. Return whether this call started it."""
    try:
        events.start(wait=0)
    except Exception as error:  # jobs can run without events
        log.warning("events from other processes are not received: %s", error)
        return False
    return True
