"""The event service and listener of this process, recreated in forked children.

A child drops its parent's callbacks, except those declared with `on_event`. If the parent was listening, the child
listens too, with the parent's options. It continues after the last event that the parent handled, because the memory
that it inherited is from that time.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar
from weakref import ReferenceType, ref

from resty_django.conf import conf
from resty_django.conf.sections.core import EventsSettings
from resty_django.processes.forks import after_fork
from resty_django.shdict import SharedDict, UnknownDict, shdicts
from resty_django.text import logger

from . import handlers
from .channels import Channel, channel_of
from .channels.base import Position
from .errors import BadOption, EventError
from .handlers import Handler
from .listener import EventListener, Starter, TaskListener, ThreadListener
from .names import events
from .options import EventOptions
from .service import EventService, Follower, PollResult

log = logger("resty_django.events")

C = TypeVar("C", bound=Handler)


class Lag(NamedTuple):
    """The lag of this process behind the last event.

    `waiting`: the number of stored events that it has not handled yet (None: it does not listen). `seconds`: response
    time of the store.
    """

    waiting: int | None
    seconds: float

    @property
    def listening(self) -> bool:
        return self.waiting is not None


class Declaration(NamedTuple):
    """A callback of `on_event`, which forked children register too."""

    callback: Handler
    source: str | None
    names: tuple[str, ...]


class _SiteChannel(NamedTuple):
    """The channel and the options from the settings, with the settings and the dictionary that determined them."""

    settings: EventsSettings
    dictionary: SharedDict
    channel: Channel
    options: EventOptions


followers: list[ReferenceType[Follower]] = []
declarations: list[Declaration] = []
_lock = threading.RLock()
_beginning = threading.Lock()
"""Held by a starting thread, which imports the dictionary's engine, and by a fork: a child would hang on a module that
another thread of its parent is importing."""
_listener: EventListener | None = None
_site: _SiteChannel | None = None


def configured_channel() -> tuple[Channel, EventOptions]:
    """Return the channel and the options from the settings, cached until they change."""
    global _site
    settings = conf.events
    dictionary = shdicts[settings.dict]
    site = _site
    if site is None or site.settings is not settings or site.dictionary is not dictionary:
        channel = channel_of(dictionary, settings.keep)
        site = _site = _SiteChannel(settings, dictionary, channel, EventOptions.of(settings))
    return site.channel, site.options


def _new_service() -> EventService:
    service = EventService(configured_channel, followers=followers)
    for declared in declarations:
        service.registry.add(declared.callback, declared.source, *declared.names)
    return service


_service = _new_service()


def service() -> EventService:
    """Return the service of this process."""
    return _service


# --- start and end -------------------------------------------------------------------------------------------


def configure(
    dictionary: str | None = None,
    *,
    timeout: float | None = None,
    interval: float | None = None,
    retries: int | None = None,
) -> None:
    """Start events in this process, or change their options.

    Options that are left out keep their value or the settings' value. The first call receives all events from now on,
    posts `started` and starts a polling thread. Later calls change the options and poll once; the dictionary cannot be
    changed. Raise `BadOption` or `Unavailable`, in which case nothing has changed.
    """
    with _lock:
        service = _service
        if not service.configured or service.options is None:
            options = EventOptions.of(conf.events).changed(timeout, interval, retries)
            service.begin(_channel(dictionary), options)
            _listen()
            return
        if dictionary is not None:
            raise BadOption("the shm cannot be changed after the start. Omit the argument dictionary.")
        service.options = service.options.changed(timeout, interval, retries)
    service.poll()


def _channel(dictionary: str | None) -> Channel:
    settings = conf.events
    try:
        return channel_of(shdicts[dictionary or settings.dict], settings.keep)
    except UnknownDict as error:
        raise BadOption(f'shm "{dictionary or settings.dict}" not found: {error}') from None


def configured() -> bool:
    """Return whether events have started in this process."""
    return _service.configured


def running() -> bool:
    """Return whether a background listener polls; never with INTERVAL 0."""
    options = _service.options
    return _listens() and (conf.events.interval if options is None else options.interval) > 0


def _listens() -> bool:
    return _listener is not None and _listener.running


def start(wait: float = 1.0) -> None:
    """Start a listener thread, unless this process already listens.

    If the store does not respond, the thread retries in the background; the call never raises for that. `wait`: maximum
    duration of the call in seconds.
    """
    with _lock:
        _listen()
        listener = _listener
    if listener is not None:
        listener.started.wait(wait)


async def astart() -> None:
    """Start a listener task in the running loop, without waiting for its start; see `start`.

    Coroutine functions then run in this loop, other handlers in a single thread.
    """
    global _listener
    with _lock:
        if not _listens():
            _listener = TaskListener(_service, _begin())


def stop(timeout: float = 2.0) -> None:
    """Post `stopping`, poll once more and stop listening. Wait at most `timeout` seconds for a listener.

    Handlers stay registered; `start` or `configure` may be called again later.
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
            log.debug("The event `stopping` of this process could not be posted: %s", error)
    service.end()


async def astop(timeout: float = 2.0) -> None:
    """Do the same as `stop`, in the loop in which `astart` was called."""
    global _listener
    with _lock:
        service, listener = _service, _listener
        if isinstance(listener, TaskListener):
            _listener = None
    if isinstance(listener, TaskListener):
        await listener.astop(timeout)
        service.end()


def ensure() -> None:
    """Receive events from now on, unless already started; for callers that poll explicitly. Raise `Unavailable`."""
    if not _service.configured and not _listens():
        _service.begin(*configured_channel())


async def aensure() -> None:
    """Do the same as `ensure`, for asyncio."""
    if not _service.configured and not _listens():
        await _service.abegin(*configured_channel())


def _listen() -> None:
    global _listener
    if not _listens():
        _listener = ThreadListener(_service, _begin())


def _begin(inherited: EventService | None = None) -> Starter:
    """Return the start parameters of the service: from the settings, or from the parent's service."""
    service = _service

    def start_arguments() -> tuple[Channel, EventOptions, Position | None]:
        if inherited is not None and inherited.channel is not None and inherited.options is not None:
            return inherited.channel, inherited.options, inherited.handled
        return *configured_channel(), None

    def begin() -> None:
        with _beginning:
            service.begin(*start_arguments())

    async def abegin() -> None:
        await service.abegin(*start_arguments())

    return Starter(begin, abegin)


def reset() -> None:
    """Stop, and drop all handlers not declared with `on_event`. For tests."""
    global _service
    stop()
    _service = _new_service()


# --- the lag ---------------------------------------------------------------------------------------------------------


def lag() -> Lag:
    """Return the lag of this process. Raise `SharedDictError`."""
    channel, _ = configured_channel()
    started = time.perf_counter()
    last = channel.last()
    seconds = time.perf_counter() - started
    service = _service
    if service.channel is None or service.handled is None:
        return Lag(None, seconds)
    return Lag(service.channel.between(service.handled, last), seconds)


def channel() -> Channel:
    """Return the channel of this process: the one in use, or the one from the settings."""
    return _service.channel or configured_channel()[0]


# --- registering -----------------------------------------------------------------------------------------------------


def register(callback: Handler, source: str | None = None, *names: str) -> None:
    """Call `callback(data, event, source, pid)` for all events, for a source's events, or only for the given names.

    `callback` is a function, a coroutine function, or a Django signal, which is sent with `sender=Event` and the
    keyword arguments source, event, data and pid. A callback that is registered twice is called twice.
    """
    handlers.check(callback)
    _service.registry.add(callback, source, *names)


def register_weak(callback: Handler, source: str | None = None, *names: str) -> None:
    """Register a callback by weak reference. A lambda without another reference is dropped immediately."""
    handlers.check(callback)
    _service.registry.add(callback, source, *names, weak=True)


def unregister(callback: Handler, source: str | None = None, *names: str) -> bool:
    """Remove the callback registered with the same source and names, weak or strong. Return whether there was one."""
    handlers.check(callback)
    declarations[:] = [declared for declared in declarations if declared != (callback, source, names)]
    return _service.registry.remove(callback, source, *names)


def on_event(source: str | None = None, *names: str) -> Callable[[C], C]:
    """Return a decorator that registers a function in this process and in every forked child.

    It may be used before the apps are ready, and returns the function unchanged. To declare a signal, call it directly:
    `on_event("orders", "paid")(order_paid)`.
    """

    def declare(callback: C) -> C:
        register(callback, source, *names)
        declarations.append(Declaration(callback, source, names))
        return callback

    return declare


def follow(follower: Follower) -> None:
    """Read from `follower` in each poll of this process and of its forked children, as long as it exists."""
    followers.append(ref(follower, followers.remove))


# --- posting and polling ---------------------------------------------------------------------------------------------


def post(source: str, event: str, data: object = None, unique: object = None) -> None:
    """Send an event to all processes, including this one. Handlers run in the next polls, never in this call.

    `data`: JSON data. `unique`: only one process handles the event, and events with the same value are ignored for
    `timeout` seconds after that. Also works in processes that have not started. Raise `BadEvent`, `NotEncodable`,
    `NoRoom` or `Unavailable`.
    """
    _service.post(source, event, data, unique)


async def apost(source: str, event: str, data: object = None, unique: object = None) -> None:
    """Do the same as `post`, without blocking the event loop."""
    await _service.apost(source, event, data, unique)


def post_local(source: str, event: str, data: object = None) -> None:
    """Send an event to this process only, for its next poll. Handlers receive `data` itself, and None as `pid`."""
    _service.post_local(source, event, data)


def poll() -> PollResult:
    """Run the handlers of all events posted so far, and of events posted meanwhile.

    Return "done", or "recursive" if a poll of this process is already running and will handle them. Raise
    `NotConfigured` or `Unavailable`.
    """
    return _service.poll()


async def apoll() -> PollResult:
    """Do the same as `poll`, for asyncio."""
    return await _service.apoll()


# --- forks and the end of the process --------------------------------------------------------------------------------


_inherited: list[object] = []
"""Objects of the parent kept alive in a child: destroying the parent's pending tasks would be reported."""


_fork_holds = False


def _before_fork() -> None:
    global _fork_holds
    _fork_holds = _beginning.acquire(timeout=5.0)


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
        listener.watch.close()
        # After a delay, so that a child that immediately executes another program never listens.
        _listener = ThreadListener(_service, _begin(parent), delay=0.05)


def _at_exit() -> None:
    _service.dispatcher.exiting = True
    stop()


after_fork(_after_fork, before=_before_fork, parent=_in_parent)
atexit.register(_at_exit)
