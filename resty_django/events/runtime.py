"""The events of this process: one service, one listener, made anew in the child of a fork.

A child begins without the callbacks of its parent, but for those that `on_event` declares. Where the parent was
listening the child listens too, with the options of the parent, and goes on after the last event that the parent had
handled: what the child inherited in memory is as old as that.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from resty_django.conf import conf
from resty_django.forks import after_fork
from resty_django.shdict import SharedDict, UnknownDict, shdicts
from resty_django.text import logger

from . import handlers
from .channel import Channel, channel_of
from .errors import BadOption, EventError
from .listener import Listener, Starter, TaskListener, ThreadListener
from .names import events
from .options import Options
from .service import UNKNOWN, EventService, Outcome
from .settings import EventsSettings

log = logger("resty_django.events")

CHILD_DELAY = 0.05
"""Seconds before a child of a fork listens; one that runs another program at once never gets there."""

FORK_PATIENCE = 5.0
"""Seconds that a fork waits for a thread that is about to begin."""

C = TypeVar("C")


class Lag(NamedTuple):
    """How far this process is behind the last event.

    `waiting`: the number of events that it has not handled yet, as far as they are kept (None: it does not listen).
    `seconds`: how long the store took to return the last position.
    """

    waiting: int | None
    seconds: float

    @property
    def listening(self) -> bool:
        return self.waiting is not None


declarations: list[tuple[Any, str | None, tuple[str, ...]]] = []
_lock = threading.RLock()
_beginning = threading.Lock()
"""Held by a thread that begins, which imports the engine of the dictionary, and by a fork: a child could never import
what another thread of its parent is importing."""
_listener: Listener | None = None


_site: tuple[EventsSettings, SharedDict, Channel, Options] | None = None


def configured_channel() -> tuple[Channel, Options]:
    """Return the channel and the options that the settings name; made once for the same settings."""
    global _site
    settings = conf.events
    dictionary = shdicts[settings.dict]
    site = _site
    if site is None or site[0] is not settings or site[1] is not dictionary:
        site = _site = settings, dictionary, channel_of(dictionary, settings.keep), Options.of(settings)
    return site[2:]


def _new_service() -> EventService:
    service = EventService(configured_channel)
    for callback, source, names in declarations:
        service.registry.add(callback, source, *names)
    return service


_service = _new_service()


def service() -> EventService:
    """Return the service of this process."""
    return _service


# --- the start and the end -------------------------------------------------------------------------------------------


def configure(
    dictionary: str | None = None,
    *,
    timeout: float | None = None,
    interval: float | None = None,
    wait_interval: float | None = None,
    wait_max: float | None = None,
    retries: int | None = None,
) -> None:
    """Start the events of this process, or change their options.

    What is left out is as the settings say, or as it was. The first call hears everything from now on, posts `started`
    and starts a thread that polls. A later one changes the options and polls once; the dictionary cannot change.
    Raises `BadOption`, `Unavailable`; nothing has changed then.
    """
    changes = {
        "timeout": timeout,
        "interval": interval,
        "wait_interval": wait_interval,
        "wait_max": wait_max,
        "retries": retries,
    }
    with _lock:
        service = _service
        if not service.configured or service.options is None:
            options = Options.of(conf.events).changed(**changes)
            service.begin(_channel(dictionary), options)
            _listen()
            return
        if dictionary is not None:
            raise BadOption("the shm cannot be changed after the start: leave dictionary out.")
        service.options = service.options.changed(**changes)
    service.poll()


def _channel(dictionary: str | None) -> Channel:
    settings = conf.events
    try:
        return channel_of(shdicts[dictionary or settings.dict], settings.keep)
    except UnknownDict as error:
        raise BadOption(f'shm "{dictionary or settings.dict}" not found: {error}') from None


def configured() -> bool:
    """Return whether the events of this process have started."""
    return _service.configured


def running() -> bool:
    """Return whether something polls in the background; with INTERVAL 0 nothing does."""
    options = _service.options
    return _listens() and (conf.events.interval if options is None else options.interval) > 0


def _listens() -> bool:
    return _listener is not None and _listener.running


def start(wait: float = 1.0) -> None:
    """Listen from now on with a thread, where this process does not listen yet.

    Where the store does not answer it is tried again in the background; `wait` is how many seconds at most the call
    takes. Never raises for a store that is down.
    """
    with _lock:
        _listen()
        listener = _listener
    if listener is not None:
        listener.started.wait(wait)


async def astart() -> None:
    """As `start`, with a task of the running loop in place of a thread, and without waiting for its start.

    Coroutine functions then run in this loop, other handlers in one thread.
    """
    global _listener
    with _lock:
        if not _listens():
            _listener = TaskListener(_service, _begin())


def stop(timeout: float = 2.0) -> None:
    """Post `stopping`, poll once more and listen no longer; takes at most `timeout` seconds where somebody listens.

    Registered handlers stay; a later `start` or `configure` begins anew.
    """
    global _listener
    with _lock:
        service, listener, _listener = _service, _listener, None
    if listener is not None:
        listener.stop(timeout)
    elif service.configured:
        try:
            service.post(events.source, events.stopping)
            service.poll()
        except EventError as error:
            log.debug("the end of this process could not be told: %s", error)
    service.end()


async def astop(timeout: float = 2.0) -> None:
    """As `stop`, for the loop in which `astart` was called."""
    global _listener
    with _lock:
        service, listener = _service, _listener
        if isinstance(listener, TaskListener):
            _listener = None
    if isinstance(listener, TaskListener):
        await listener.astop(timeout)
        service.end()


def ensure() -> None:
    """Hear events from now on, where nothing does so: for callers that poll by themselves. Raises `Unavailable`."""
    if not _service.configured and not _listens():
        _service.begin(*configured_channel())


async def aensure() -> None:
    """As `ensure`."""
    if not _service.configured and not _listens():
        await _service.abegin(*configured_channel())


def _listen() -> None:
    global _listener
    if not _listens():
        _listener = ThreadListener(_service, _begin())


def _begin(inherited: EventService | None = None) -> Starter:
    """Return how the service of this process begins: as the settings say, or where another was."""
    service = _service

    def start_arguments() -> tuple[Channel, Options, Any]:
        if inherited is not None and inherited.channel is not None and inherited.options is not None:
            return inherited.channel, inherited.options, inherited.handled
        return *configured_channel(), UNKNOWN

    def begin() -> None:
        with _beginning:
            service.begin(*start_arguments())

    async def abegin() -> None:
        await service.abegin(*start_arguments())

    return Starter(begin, abegin)


def reset() -> None:
    """Stop, and forget what is registered, but for `on_event`: for tests."""
    global _service
    stop()
    _service = _new_service()


# --- the lag ---------------------------------------------------------------------------------------------------------


def lag() -> Lag:
    """Return the lag of this process. Raises `SharedDictError`."""
    channel, _ = configured_channel()
    started = time.perf_counter()
    last = channel.last()
    seconds = time.perf_counter() - started
    service = _service
    if service.channel is None or service.handled is UNKNOWN:
        return Lag(None, seconds)
    return Lag(service.channel.between(service.handled, last), seconds)


# --- registering -----------------------------------------------------------------------------------------------------


def register(callback: Any, source: str | None = None, *names: str) -> None:
    """Call `callback(data, event, source, pid)` for every event, those of a source, or those of these names of it.

    `callback` is a function, a coroutine function, or a Django signal, which is sent with `sender=Event` and the
    keyword arguments source, event, data and pid. Registered twice it is called twice.
    """
    handlers.check(callback)
    _service.registry.add(callback, source, *names)


def register_weak(callback: Any, source: str | None = None, *names: str) -> None:
    """As `register`, but the callback is forgotten when nobody else refers to it. A lambda is so at once."""
    handlers.check(callback)
    _service.registry.add(callback, source, *names, weak=True)


def unregister(callback: Any, source: str | None = None, *names: str) -> bool:
    """Take back what was registered with the same source and names, weak and strong. True if there was something."""
    handlers.check(callback)
    declarations[:] = [declared for declared in declarations if declared != (callback, source, names)]
    return _service.registry.remove(callback, source, *names)


def on_event(source: str | None = None, *names: str) -> Callable[[C], C]:
    """Return a decorator that registers a function, in this process and in every child of a fork.

    It may be called before the apps are ready. Gives the function back unchanged; a signal is declared by a plain call,
    `on_event("orders", "paid")(order_paid)`.
    """

    def declare(callback: C) -> C:
        register(callback, source, *names)
        declarations.append((callback, source, names))
        return callback

    return declare


# --- posting and polling ---------------------------------------------------------------------------------------------


def post(source: str, event: str, data: Any = None, unique: object = None) -> None:
    """Tell all processes of an event, this one too; its handlers run in the next polls, never in here.

    `data`: anything that JSON holds. `unique`: the event is run by one process alone, and events with the same value
    are ignored until `timeout` seconds after that. Works in a process that did not start, too. Raises `BadEvent`,
    `NotEncodable`, `NoRoom`, `Unavailable`.
    """
    _service.post(source, event, data, unique)


async def apost(source: str, event: str, data: Any = None, unique: object = None) -> None:
    """As `post`, without blocking the event loop."""
    await _service.apost(source, event, data, unique)


def post_local(source: str, event: str, data: Any = None) -> None:
    """Tell this process alone, in its next poll. Handlers get the very object `data`, and None as the pid."""
    _service.post_local(source, event, data)


def poll() -> Outcome:
    """Run the handlers of all events that were posted until now, and of those that are posted meanwhile.

    "recursive" where a poll of this process is running: it will run them. Raises `NotConfigured`, `Unavailable`.
    """
    return _service.poll()


async def apoll() -> Outcome:
    """As `poll`, for asyncio."""
    return await _service.apoll()


# --- forks and the end of the process --------------------------------------------------------------------------------


_inherited: list[object] = []
"""What a child keeps of its parent, since the end of a task that waits in a loop of the parent would be reported."""


_fork_holds = False


def _before_fork() -> None:
    global _fork_holds
    _fork_holds = _beginning.acquire(timeout=FORK_PATIENCE)


def _in_parent() -> None:
    if _fork_holds:
        _beginning.release()


def _after_fork() -> None:
    global _lock, _beginning, _service, _listener
    parent, listener = _service, _listener
    _inherited.append((parent, listener))
    _lock, _beginning = threading.RLock(), threading.Lock()
    _service = _new_service()
    _listener = None
    if listener is not None:
        _listener = ThreadListener(_service, _begin(parent), CHILD_DELAY)


def _at_exit() -> None:
    _service.dispatcher.exiting = True
    stop()


after_fork(_after_fork, before=_before_fork, parent=_in_parent)
atexit.register(_at_exit)
