"""A worker process: its threads, its pipes to the parent, and its signals."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import FrameType
from typing import Any

from django.core.cache import caches
from django.db import connections

from resty_django import events
from resty_django.text import logger

from ..archive.runner import Archiver
from ..clients.client import Client
from ..clients.default import default_client
from ..errors import DuplicateTask
from ..job_classes import discover
from ..outbox.runner import OutboxRunner
from ..retention import RetentionThread
from ..search.index import Indexer
from ..tasks.schedule import Scheduler
from ..worker.executor import Pool
from ..worker.forks import terminate_forks_at_end
from ..worker.heartbeat import StandIn
from ..worker.listener import JobListener
from ..worker.loop import ExitCode, WorkerLoop
from ..worker.options import WorkerOptions
from ..worker.processes.child import JobProcess, start_events
from ..worker.processes.fork_server import ForkServer
from ..worker.processes.pool import JobProcessPool
from ..worker.processes.slot_memory import make_memory
from ..worker.reports.liveness import LivenessReporter
from ..worker.reports.remote_control import RemoteControl

log = logger("resty_django.qless.worker")


class ParentCommand(bytes, Enum):
    """A command from the parent: one byte in the pipe."""

    STOP = b"S"
    """Stop within the grace period."""
    QUIT = b"Q"
    """Stop after the running jobs."""
    NOW = b"N"
    """Stop now."""
    PAUSE = b"P"
    RESUME = b"R"


def serve(
    options: WorkerOptions,
    commands: int,
    reports: int,
    *,
    stand_in: StandIn | None,
    shown: bool,
    paused: bool,
    slots: int,
    dead: Iterable[str] = (),
) -> int:
    """Run jobs until the parent or a signal stops them. Return the exit code.

    `commands`, `reports`: file descriptors of the parent's pipes. `stand_in`: for a worker that runs jobs in threads.
    `shown`: whether the parent displays snapshots. `dead`: names of workers that have died.
    """
    if stand_in is not None:
        stand_in.shared.clear()
        stand_in.dump.enable()
    parent = ReportPipe(reports)
    client = default_client()
    client.worker_name = f"{options.name}-{os.getpid()}"
    if any(isinstance(error, DuplicateTask) for error in discover().values()):  # which it has logged
        return ExitCode.CONFIG
    make_pool = start_processes(client.worker_name, options) if options.pool == "processes" else None
    terminate_forks_at_end()  # after starting the processes that are stopped separately
    loop, listener = build(client, options, make_pool)
    loop.paused = paused
    loop.resize(slots)
    scheduler = Scheduler(client, options.queues)
    actions = _actions(loop, options)
    _handle_signals(loop, actions)
    dead = (*dead, loop.name)  # a worker of the same name, in a container, may have left requests
    liveness = LivenessReporter(client, loop.name, options.queues, dead)
    liveness.control = RemoteControl(client, loop, options, wake=liveness.wake, keep=parent.keep)
    if stand_in is not None:
        loop.in_flight.shared, liveness.on_round = stand_in.shared, stand_in.shared.record_report
    listener.on_request = liveness.wake
    listener.start()
    scheduler.start()
    liveness.start()
    indexer = Indexer(client)
    indexer.start()
    threading.Thread(target=_read_commands, args=(commands, loop, actions), name="qless-parent", daemon=True).start()
    if shown:
        threading.Thread(target=_send_snapshots, args=(parent, loop), name="qless-report", daemon=True).start()
    started = start_events()
    maintainers = [kind(client) for kind in (Archiver, OutboxRunner, RetentionThread) if kind.is_wanted()]
    for maintainer in maintainers:
        maintainer.start()
    log.info("worker %s serves the queues %s", loop.name, ", ".join(options.queues))
    try:
        return loop.run()
    finally:
        scheduler.stop()
        liveness.stop()
        indexer.stop()
        listener.stop()
        for maintainer in maintainers:
            maintainer.stop()
        if started:
            events.stop()  # this process ends without its exit handlers
        log.info("worker %s has ended: %s", loop.name, dict(loop.in_flight.counts))


def start_processes(worker: str, options: WorkerOptions) -> Callable[[Any], JobProcessPool]:
    """Start the process that forks the processes of jobs, and return the factory of their pool.

    Call it before this process has threads.
    """
    connections.close_all()  # which modules have opened when they were imported
    caches.close_all()
    memory = make_memory(options.max_slots)
    fork_server = ForkServer(lambda slot, connection, dump: JobProcess(worker, memory, slot, connection, dump).serve())
    return partial(
        JobProcessPool,
        fork_server=fork_server,
        memory=memory,
        slots=options.max_slots,
        kill_after=options.kill_after,
    )


def build(
    client: Client, options: WorkerOptions, make_pool: Callable[[Any], Pool] | None = None
) -> tuple[WorkerLoop, JobListener]:
    """Return a worker with the client's name, and the listener that notifies it. `make_pool`: None for the default."""
    default_pool, lock_lost_handler = _pool(options)
    loop = WorkerLoop(client, client.worker_name, options, options.make_reserver(), make_pool or default_pool)
    inbox = loop.inbox
    if isinstance(loop.pool, JobProcessPool):
        loop.pool.listen(lambda: inbox.put(partial(loop.stop, 0.0, ExitCode.DIED)))
    listener = JobListener(
        client,
        options.queues,
        loop.name,
        on_job_available=lambda queue: inbox.put(partial(loop.on_job_available, queue)),
        on_lock_lost=lock_lost_handler(loop),
        on_reconnect=lambda: inbox.put(loop.on_reconnect),
    )
    loop.before_poll = listener.rearm
    return loop, listener


def _pool(options: WorkerOptions) -> tuple[Callable[[Any], Pool], Callable[[WorkerLoop], Callable[[str], None]]]:
    """Return the factories of the pool and of the function that is called when the server reports a lost lock."""
    if options.via == "celery":
        from ..integrations.celery import make_dispatcher

        return make_dispatcher, lambda loop: loop.pool.taken
    return Pool, lambda loop: lambda jid: loop.inbox.put(partial(loop.in_flight.verify_lease, jid))


def _actions(loop: WorkerLoop, options: WorkerOptions) -> dict[ParentCommand, Callable[[], object]]:
    return {
        ParentCommand.STOP: partial(loop.stop, options.grace),
        ParentCommand.QUIT: partial(loop.stop, None),
        ParentCommand.NOW: partial(loop.stop, 0.0),
        ParentCommand.PAUSE: partial(loop.pause, True),
        ParentCommand.RESUME: partial(loop.pause, False),
    }


def _handle_signals(loop: WorkerLoop, actions: dict[ParentCommand, Callable[[], object]]) -> None:
    """Handle signals sent to this process or its group. Ctrl-C also reaches the parent, which passes it on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, action in (
        (signal.SIGTERM, actions[ParentCommand.STOP]),
        (signal.SIGQUIT, actions[ParentCommand.QUIT]),
        (signal.SIGUSR1, actions[ParentCommand.NOW]),
        (signal.SIGUSR2, actions[ParentCommand.PAUSE]),
        (signal.SIGCONT, actions[ParentCommand.RESUME]),
    ):

        def handler(number: int, frame: FrameType | None, action: Callable[[], object] = action) -> None:
            loop.inbox.put(action)

        signal.signal(number, handler)


def _read_commands(commands: int, loop: WorkerLoop, actions: dict[ParentCommand, Callable[[], object]]) -> None:
    while command := os.read(commands, 1):
        loop.inbox.put(actions[ParentCommand(command)])
    log.warning("the parent of worker %s is gone", loop.name)
    loop.inbox.put(actions[ParentCommand.STOP])


def _send_snapshots(parent: ReportPipe, loop: WorkerLoop) -> None:
    while parent.send(loop.snapshot()):
        time.sleep(0.5)


class ReportPipe:
    """The pipe to the parent, on which each report is a line of JSON."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writing = threading.Lock()

    def keep(self, state: dict[str, Any]) -> None:
        """Let the process that replaces this one start in this state: `paused` and `slots`."""
        self.send({"kept": state})

    def send(self, report: dict[str, Any]) -> bool:
        """Return False if the parent is gone."""
        line = json.dumps(report).encode() + b"\n"
        try:
            with self._writing:
                os.write(self._descriptor, line)
        except OSError:
            return False
        return True
