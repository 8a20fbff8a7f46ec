"""From a datagram to its reply: the quick path for a plain `get`, and the careful one for everything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from ipaddress import ip_address
from typing import Any

from django.db import Error as DatabaseError
from msgspec import UNSET, Raw, UnsetType

from resty_django.conf import conf

from .. import store
from ..engine.counter import Retired, unavailable
from ..errors import BadCount, BadRequest, IdError, NotExist, UnknownRule
from ..service import IdService
from . import protocol
from .guard import Nonces
from .signing import sign, verify
from .stats import Stats

MAX_REPLY = 65_000
"""Bytes: a little under what a UDP datagram can hold."""

Send = Callable[[bytes], None]


class Drop(Exception):
    """No reply; the argument is the cause to count."""


class Waiting(Exception):
    """The reply needs a reservation, or a look into the database: go on when `future` is done."""

    def __init__(self, future: Future[Any], request: Request) -> None:
        super().__init__()
        self.future = future
        self.request = request


class Request:
    """A request taken apart, which may have to wait between its steps."""

    __slots__ = ("action", "app", "count", "fields", "key", "made", "position", "rule", "salt")

    def __init__(self, fields: dict[str, Raw], key: bytes | None) -> None:
        self.fields = fields
        self.key = key
        self.made: list[str] = []
        self.position: Future[store.Position | None] | None = None
        self.rule = self.app = self.salt = self.action = ""
        self.count: int | None = None

    def read(self) -> None:
        """Check the fields; BadRequest names the first wrong one."""
        self.action = protocol.text_field(self.fields, "action")
        self.rule = protocol.text_field(self.fields, "rule_name")
        self.app = protocol.text_field(self.fields, "app_name")
        self.salt = protocol.salt_field(self.fields)
        self.count = protocol.count_field(self.fields)


class Answerer:
    """Makes replies out of datagrams, with the IDs of `service`. Counts what it does in `stats`.

    With `keys`, only datagrams signed with one of them are answered, and replies are signed with the same.
    """

    def __init__(self, service: IdService, stats: Stats, keys: Sequence[str] = ()) -> None:
        self._service = service
        self._stats = stats
        self._keys = [key.encode() for key in keys]
        self._nonces = Nonces()
        self._counters = service.counters
        self._wait = conf.ids.wait
        self.quick = self._quick if not self._keys and not service.logs else self._never

    def _quick(self, datagram: bytes) -> bytes | None:
        """The reply to a plain request that can be served at once; None for all that needs `answer`."""
        try:
            request = protocol.decode(datagram)
            if request.action not in protocol.CREATE or request.count is not UNSET or request.code is not UNSET:
                return None
            counter = self._counters.get((request.rule_name, request.app_name))
            if counter is None or not datagram.isascii():
                return None
            salt = request.salt
            made = counter.attempt("" if isinstance(salt, UnsetType) else salt)
        except IdError as error:
            return self.refusal(Request(protocol.decode_lax(datagram), None), error)
        except (*protocol.DECODE_ERRORS, Retired):
            return None
        if made is None:
            return None
        request.code = 0
        request.data = made
        request.message = protocol.SUCCESS
        return protocol.encode_message(request)

    @staticmethod
    def _never(datagram: bytes) -> bytes | None:
        return None

    def answer(self, datagram: bytes, host: str) -> bytes:
        """The reply to any datagram from `host`. Raises Drop for none, Waiting to be resumed."""
        key = None
        if self._keys:
            datagram, key = self._verified(datagram)
        try:
            fields = protocol.decode_lax(datagram)
        except protocol.NotAnObject:
            raise Drop("not_an_object") from None
        if protocol.looks_like_reply(fields.get("code"), fields.get("message")):
            raise Drop("looks_like_reply")
        request = Request(fields, key)
        if key is not None:
            self._check_replay(fields)
        try:
            request.read()
        except BadRequest as error:
            reply = self.refusal(request, error)
            if key is None and len(reply) > len(datagram) and not ip_address(host.partition("%")[0]).is_loopback:
                raise Drop("bad_request") from None
            return reply
        return self.resume(request)

    def resume(self, request: Request) -> bytes:
        """Go on with a request, from its beginning or after a wait."""
        try:
            reply = self._create(request) if request.action in protocol.CREATE else self._monitor(request)
        except IdError as error:
            return self.refusal(request, error)
        return sign(reply, request.key) if request.key is not None else reply

    def refusal(self, request: Request, error: IdError) -> bytes:
        """The reply that refuses a request."""
        self._stats.errors[error.code] += 1
        reply = protocol.failure(request.fields, error)
        return sign(reply, request.key) if request.key is not None else reply

    def _create(self, request: Request) -> bytes:
        count = 1 if request.count is None else request.count
        if not 1 <= count <= conf.ids.max_count:
            raise BadCount(f"count is {count}; it is a whole number from 1 to {conf.ids.max_count}")
        future = self._service.step(request.made, count, request.rule, request.app, request.salt, reload=False)
        if future is not None:
            raise Waiting(future, request)
        self._service.logged(request.rule, request.app, request.made)
        reply = protocol.success(
            request.fields, request.made[0] if request.count is None else request.made, protocol.SUCCESS
        )
        if len(reply) > MAX_REPLY:
            raise BadCount(f"{count} IDs do not fit into one datagram; ask for fewer")
        return reply

    def _monitor(self, request: Request) -> bytes:
        try:
            loaded = self._service.rule(request.rule, reload=False)
        except UnknownRule:
            raise NotExist("not exist") from None
        counter = self._counters.get((request.rule, request.app))
        number = counter.position if counter is not None else None
        if number is None:
            if request.position is None:
                request.position = self._service.desk.submit(lambda: store.position(loaded.row.pk, request.app))
                raise Waiting(request.position, request)
            try:
                found = request.position.result(0)
            except (DatabaseError, TimeoutError):
                raise unavailable() from None
            if found is None:
                raise NotExist("not exist")
            number = found.counter
        return protocol.success(request.fields, {"counter": number, "node_offset": conf.ids.offset}, protocol.OK)

    def _verified(self, datagram: bytes) -> tuple[bytes, bytes]:
        found = verify(datagram, self._keys)
        if found is None:
            raise Drop("unsigned")
        return found

    def _check_replay(self, fields: dict[str, Raw]) -> None:
        sent, nonce = protocol.value(fields.get("time")), protocol.value(fields.get("nonce"))
        if isinstance(sent, bool) or not isinstance(sent, int | float) or not isinstance(nonce, str):
            raise Drop("unsigned")
        if len(nonce) < 16 or not self._nonces.fresh(nonce, float(sent), time.time()):
            raise Drop("replayed")
