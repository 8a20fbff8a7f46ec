"""The UDP server loop: receive, handle, reply; on one thread, with a blocking socket.

A request that must wait for a reservation is parked and answered by the thread that made the reservation, so that the
loop never waits for the database.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from ipaddress import ip_address
from itertools import count
from time import perf_counter_ns
from typing import Any, NamedTuple

from resty_django.conf import conf
from resty_django.text import logger

from ..engine.counter import unavailable
from ..errors import IdError
from ..service.id_service import IdService
from .access import AccessControl
from .handler import Ignored, Pending, Request, RequestHandler
from .stats import UdpStats

log = logger("resty_django.ids.udp")

MAX_PARKED_MONITORS = 1000
"""The maximum number of parked monitor requests. It is smaller than the maximum of all requests, so that requests for
IDs can always be parked."""

Address = Any


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a UDP socket bound to `host` and `port`; `shared` allows other sockets of this user to bind there, too."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


class ParkedRequest(NamedTuple):
    """A request that waits for a reservation since `since` (monotonic seconds); `send` sends its reply."""

    since: float
    request: Request
    send: Callable[[bytes], None]


class UdpServer:
    """A server for one bound socket, until `stop` is called from a signal handler or another thread."""

    def __init__(self, sock: socket.socket, service: IdService) -> None:
        udp = conf.ids.udp
        self.sock = sock
        self.service = service
        self.stats = UdpStats()
        self.handler = RequestHandler(service, self.stats, udp.keys, listed=bool(udp.networks))
        self.handler.local = self.handler.local or ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback
        self.stopping = False
        access = AccessControl(udp.networks, udp.rate)
        self._access = None if access.idle else access
        self._size = udp.max_datagram
        self._wait = conf.ids.wait
        self._parked: dict[int, ParkedRequest] = {}
        self._monitors: set[int] = set()
        self._numbers = count()
        self._reported: set[str] = set()

    def stop(self) -> None:
        """End the loop after the requests that are already in the socket. Safe in a signal handler."""
        self.stopping = True

    def serve(self) -> None:
        """Answer requests until stopped, then answer remaining and parked ones, and return the unused numbers."""
        # Without a request, the loop checks after 0.2 s whether to stop.
        timeout = struct.pack("ll", 0, 200_000)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        ended = threading.Event()
        sweeper = threading.Thread(target=self._sweep, args=(ended,), name="resty-ids-sweeper", daemon=True)
        sweeper.start()
        try:
            self._loop()
            self._drain()
        finally:
            ended.set()
            sweeper.join()  # it may still be replying
            self.service.stop()
            self.sock.close()

    def snapshot(self) -> dict[str, Any]:
        """Return the statistics of this process: the server's and its ID service's."""
        return {**self.stats.snapshot(), "service": self.service.stats(), "parked": len(self._parked)}

    def _loop(self) -> None:
        while not self.stopping:
            self._one_by_one(1 << 30)

    def _one_by_one(self, limit: int) -> None:
        """Answer up to `limit` requests, or until none arrives for a while, with one receive call for each."""
        recvfrom, sendto, size = self.sock.recvfrom, self.sock.sendto, self._size + 1
        fast_path, handle, access, stats = self.handler.fast_path, self.handle, self._access, self.stats
        requests = 0
        try:
            while requests < limit and not self.stopping:
                datagram, address = recvfrom(size)
                requests += 1
                is_timed = not requests & 15  # one request in sixteen
                began = perf_counter_ns() if is_timed else 0
                if access is None and (reply := fast_path(datagram)) is not None:
                    sendto(reply, address)
                else:
                    handle(datagram, address)
                if is_timed:
                    stats.took(perf_counter_ns() - began)
                    stats.requests += 16
        except BlockingIOError:
            pass
        except OSError as error:
            self._note("socket_error", error)
            time.sleep(0.001)
        except Exception as error:
            self._note("internal_error", error)
        stats.requests += requests & 15

    def handle(self, datagram: bytes, address: Address) -> None:
        """Answer any datagram: now, later, or not at all."""
        host = address[0]
        if self._access is not None and (cause := self._access.refusal(host)) is not None:
            self.stats.dropped[cause] += 1
            return
        if not datagram or len(datagram) > self._size:
            self.stats.dropped["too_long" if datagram else "empty"] += 1
            return

        def send(reply: bytes) -> None:
            try:
                self.sock.sendto(reply, address)
            except OSError as error:
                self._note("socket_error", error)

        try:
            send(self.handler.handle(datagram, host))
        except Ignored as ignored:
            self.stats.dropped[str(ignored)] += 1
        except Pending as pending:
            self._park(pending, send)

    def _park(self, pending: Pending, send: Callable[[bytes], None], since: float | None = None) -> None:
        monitors = pending.request.position is not None
        if len(self._parked) >= 10_000 or (monitors and len(self._monitors) >= MAX_PARKED_MONITORS):
            self._refuse(pending.request, send, unavailable())
            return
        number = next(self._numbers)
        if monitors:
            self._monitors.add(number)
        since = time.monotonic() if since is None else since
        self._parked[number] = ParkedRequest(since, pending.request, send)
        pending.future.add_done_callback(lambda future: self._unpark(number, future))

    def _refuse(self, request: Request, send: Callable[[bytes], None], error: IdError) -> None:
        try:
            send(self.handler.refusal(request, error))
        except Ignored as ignored:
            self.stats.dropped[str(ignored)] += 1

    def _unpark(self, number: int, future: Future[Any]) -> None:
        """Continue a parked request; runs on the thread that made its reservation."""
        parked = self._parked.pop(number, None)
        self._monitors.discard(number)
        if parked is None:
            return
        try:
            error = future.exception()
            if isinstance(error, IdError):
                self._refuse(parked.request, parked.send, error)
            else:
                parked.send(self.handler.resume(parked.request))
        except Ignored as ignored:
            self.stats.dropped[str(ignored)] += 1
        except Pending as pending:
            self._park(pending, parked.send, parked.since)
        except Exception as failure:
            self._note("internal_error", failure)

    def _sweep(self, ended: threading.Event) -> None:
        """Refuse requests that have been parked for too long because the database hangs."""
        while not ended.wait(0.1):
            late = time.monotonic() - self._wait
            for number, parked in self._parked.copy().items():  # other threads change it meanwhile
                if parked.since < late and self._parked.pop(number, None) is not None:
                    self._monitors.discard(number)
                    self._refuse(parked.request, parked.send, unavailable())

    def _drain(self) -> None:
        self.sock.setblocking(False)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            try:
                datagram, address = self.sock.recvfrom(self._size + 1)
            except OSError:
                break
            self.stats.requests += 1
            self.handle(datagram, address)
        until = time.monotonic() + self._wait
        while self._parked and time.monotonic() < until:
            time.sleep(0.005)

    def _note(self, cause: str, error: Exception) -> None:
        """Count an error, and log the first one of each kind."""
        self.stats.dropped[cause] += 1
        kind = f"{cause} {type(error).__name__} {getattr(error, 'errno', '')}"
        if kind not in self._reported:
            self._reported.add(kind)
            log.error("%s in the UDP server (logged once): %s", cause, error, exc_info=error)
