"""Request handling: a fast path for a plain `get`, and the full path for everything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from ipaddress import ip_address
from typing import Any

from django.db import Error as DatabaseError
from msgspec import UNSET, Raw, UnsetType

from resty_django.conf import conf

from .. import store
from ..engine.counter import Retired, unavailable
from ..errors import BadCount, BadRequest, IdError, NotExist, Unavailable, UnknownRule
from ..service.id_service import IdService
from . import protocol
from .access import Nonces
from .signing import sign, verify
from .stats import UdpStats

Send = Callable[[bytes], None]


class Ignored(Exception):
    """The request gets no reply; the argument is the cause to count."""


class Pending(Exception):
    """The reply needs a reservation, or a database read: resume when `future` is done."""

    def __init__(self, future: Future[Any], request: Request) -> None:
        super().__init__()
        self.future = future
        self.request = request


class Request:
    """A parsed request, which may have to wait between its steps.

    `longest` is the maximum size of its reply in bytes, or None if the sender is trusted.
    """

    __slots__ = ("action", "app", "count", "fields", "ids", "key", "longest", "position", "rule", "salt")

    def __init__(self, fields: dict[str, Raw], key: bytes | None, longest: int | None = None) -> None:
        self.fields = fields
        self.key = key
        self.longest = longest
        self.ids: list[str] = []
        self.position: Future[store.CounterPosition | None] | None = None
        self.rule = self.app = self.salt = self.action = ""
        self.count: int | None = None

    def read(self) -> None:
        """Check the fields. Raise BadRequest for the first wrong one."""
        self.action = protocol.text_field(self.fields, "action")
        self.rule = protocol.text_field(self.fields, "rule_name")
        self.app = protocol.text_field(self.fields, "app_name")
        self.salt = protocol.salt_field(self.fields)
        self.count = protocol.count_field(self.fields)


class RequestHandler:
    """Turns requests into replies with IDs from `service`, and counts them in `stats`.

    With `keys`, only datagrams signed with one of the keys are answered, and replies are signed with the same key.
    Without keys, senders on this host are trusted, and with `listed` those in the networks of the settings, too. A
    reply to any other sender is not longer than its request, unless it contains a single ID: the sender's address may
    be forged, and the server must not amplify traffic to a victim.
    """

    def __init__(self, service: IdService, stats: UdpStats, keys: Sequence[str] = (), *, listed: bool = False) -> None:
        self._trusts_all = bool(keys) or listed
        self._service = service
        self._stats = stats
        self._keys = [key.encode() for key in keys]
        self._nonces = Nonces()
        self._counters = service.counters
        self._wait = conf.ids.wait
        self.local = self._trusts_all
        """Whether all senders are trusted; the server sets it if it is bound to this host only."""
        self.fast_path = self._fast_path if not self._keys and not service.logs else self._no_fast_path

    def _fast_path(self, datagram: bytes) -> bytes | None:
        """Return the reply to a plain request that can be served immediately, or None if it requires `handle`."""
        try:
            request = protocol.decode(datagram)
            if request.action not in protocol.CREATE or request.count is not UNSET or request.code is not UNSET:
                return None
            counter = self._counters.get((request.rule_name, request.app_name))
            if counter is None or not datagram.isascii():
                return None
            salt = request.salt
            text = counter.attempt("" if isinstance(salt, UnsetType) else salt)
        except IdError as error:
            return self.refusal(Request(protocol.decode_lax(datagram), None), error) if self.local else None
        except (*protocol.DECODE_ERRORS, Retired):
            return None
        if text is None:
            return None
        request.code = 0
        request.data = text
        request.message = protocol.SUCCESS
        return protocol.encode_message(request)

    @staticmethod
    def _no_fast_path(datagram: bytes) -> bytes | None:
        return None

    def handle(self, datagram: bytes, host: str) -> bytes:
        """Return the reply to any datagram from `host`. Raise Ignored for no reply, Pending if it must be resumed."""
        key = None
        if self._keys:
            datagram, key = self._verified(datagram)
        try:
            fields = protocol.decode_lax(datagram)
        except protocol.NotAnObject:
            raise Ignored("not_an_object") from None
        if protocol.looks_like_reply(fields.get("code"), fields.get("message")):
            raise Ignored("looks_like_reply")
        request = Request(fields, key, None if self._trusts(host) else len(datagram))
        if key is not None:
            self._check_replay(fields)
        try:
            request.read()
        except BadRequest as error:
            return self.refusal(request, error)
        return self.resume(request)

    def resume(self, request: Request) -> bytes:
        """Continue a request, from its beginning or after a wait. Raise Ignored for no reply, or Pending again."""
        try:
            return self._create(request) if request.action in protocol.CREATE else self._monitor(request)
        except IdError as error:
            return self.refusal(request, error)

    def refusal(self, request: Request, error: IdError) -> bytes:
        """Return the reply that refuses a request. Raise Ignored if it must not be sent."""
        self._stats.errors[error.code] += 1
        if isinstance(error, Unavailable):
            error = self._service.explained(error)
        return self._reply(request, protocol.failure(request.fields, error))

    def _reply(self, request: Request, forms: Iterable[bytes], *, single: bool = False) -> bytes:
        """Return the first form of a reply that is short enough, signed if the request was. Raise Ignored if none is.

        A reply with a `single` ID may have any length.
        """
        longest = None if single else request.longest
        for reply in forms:
            if longest is None or len(reply) <= longest:
                return sign(reply, request.key) if request.key is not None else reply
        raise Ignored("reply_too_long")

    def _trusts(self, host: str) -> bool:
        return self.local or ip_address(host.partition("%")[0]).is_loopback

    def _create(self, request: Request) -> bytes:
        count = 1 if request.count is None else request.count
        if not 1 <= count <= conf.ids.max_count:
            raise BadCount(f"The count is {count}. Use a whole number from 1 to {conf.ids.max_count}.")
        if count > 1 and request.longest is not None:
            self._first_of_batch(request, count)
        self._take(request, count)
        self._service.logged(request.rule, request.app, request.ids)
        forms = protocol.success(
            request.fields, request.ids[0] if request.count is None else request.ids, protocol.SUCCESS
        )
        reply = self._reply(request, forms, single=count == 1)
        if len(reply) > 65_000:  # bytes, slightly below the UDP limit
            raise BadCount(f"{count} IDs do not fit into one datagram. Request fewer.")
        return reply

    def _take(self, request: Request, count: int) -> None:
        future = self._service.step(request.ids, count, request.rule, request.app, request.salt, reload=False)
        if future is not None:
            raise Pending(future, request)

    def _first_of_batch(self, request: Request, count: int) -> None:
        """Take one ID of a batch to estimate the reply's size. Raise Ignored if it would be too long."""
        if len(request.ids) < 1:
            self._take(request, 1)
        self._reply(request, protocol.success(request.fields, request.ids[:1] * count, protocol.SUCCESS))

    def _monitor(self, request: Request) -> bytes:
        try:
            loaded = self._service.rule(request.rule, reload=False)
        except UnknownRule:
            raise NotExist("not exist") from None
        counter = self._counters.get((request.rule, request.app))
        number = counter.position if counter is not None else None
        if number is None:
            if request.position is None:
                request.position = self._service.reservations.requests.lookup(loaded.row.pk, request.app)
                raise Pending(request.position, request)
            try:
                stored = request.position.result(0)
            except (DatabaseError, TimeoutError):
                raise unavailable() from None
            if stored is None:
                raise NotExist("not exist")
            number = stored.counter
        data = {"counter": number, "node_offset": conf.ids.offset}
        return self._reply(request, protocol.success(request.fields, data, protocol.OK))

    def _verified(self, datagram: bytes) -> tuple[bytes, bytes]:
        verified = verify(datagram, self._keys)
        if verified is None:
            raise Ignored("unsigned")
        return verified

    def _check_replay(self, fields: dict[str, Raw]) -> None:
        sent, nonce = protocol.value(fields.get("time")), protocol.value(fields.get("nonce"))
        if isinstance(sent, bool) or not isinstance(sent, int | float) or not isinstance(nonce, str):
            raise Ignored("unsigned")
        if len(nonce) < 16 or not self._nonces.fresh(nonce, float(sent), time.time()):
            raise Ignored("replayed")
