"""Encoding of requests and replies, for both clients."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from typing import NamedTuple

import msgspec

from .. import errors
from ..errors import BadCount, BadRequest, IdError
from ..udp.signing import sign, verify

MAX_REQUEST_BYTES = 65_000
"""Slightly below the UDP limit."""


class MonitorReply(NamedTuple):
    """A counter's position: the last number issued or reserved, and the offset of the server's node."""

    counter: int
    node_offset: int


class UdpReply(msgspec.Struct):
    """The fields of a reply that a client reads."""

    code: int
    seq: str
    message: str = ""
    data: object = None


class _Position(msgspec.Struct):
    counter: int
    node_offset: int


class Codec:
    """Encodes requests and decodes replies. With a key, signs requests and verifies replies."""

    def __init__(self, key: str | bytes | None) -> None:
        self._key = key.encode() if isinstance(key, str) else key
        if self._key is not None and not self._key:
            raise ValueError("The key is empty. Omit it, or pass a key that RESTY_DJANGO['IDS']['UDP']['KEYS'] lists.")
        self._series = (-1, "", itertools.count())

    def new_seq(self) -> str:
        """Return a string that is unique among the requests of all processes."""
        process, prefix, numbers = self._series
        if process != os.getpid():
            prefix, numbers = secrets.token_hex(8), itertools.count(1)
            self._series = (os.getpid(), prefix, numbers)
        return f"{prefix}-{next(numbers)}"

    def request(self, fields: dict[str, object], seq: str) -> bytes:
        """Return the datagram of a request. Raise BadRequest if a string is not valid Unicode or it is too long."""
        fields = {**fields, "seq": seq}
        if self._key is not None:
            fields |= {"time": time.time(), "nonce": secrets.token_urlsafe(16)}
        try:
            data = msgspec.json.encode(fields)
        except UnicodeEncodeError as error:
            raise BadRequest("The rule, app and salt must not contain lone surrogates. Pass valid Unicode.") from error
        if self._key is not None:
            data = sign(data, self._key)
        if len(data) > MAX_REQUEST_BYTES:
            raise BadRequest(
                f"The request has {len(data)} bytes and a datagram fits {MAX_REQUEST_BYTES}. Use shorter strings."
            )
        return data

    def reply(self, datagram: bytes) -> UdpReply | None:
        """Return the reply in a datagram, or None if it is not a reply or not signed with this client's key."""
        if self._key is not None:
            verified = verify(datagram, (self._key,))
            if verified is None:
                return None
            datagram = verified[0]
        try:
            return _decode(datagram)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


_decode = msgspec.json.Decoder(UdpReply).decode


def get_fields(rule: str, app: str, salt: str, count: int) -> dict[str, object]:
    """Return the fields of a request for IDs. Raise BadRequest or BadCount for values that no server accepts."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadCount(f"The count is {count!r:.20}. Use a whole number of at least 1.")
    fields = {"action": "get", **_names(rule=rule, app=app)}
    if not isinstance(salt, str):
        raise BadRequest(f"The type of the salt is {type(salt).__name__}. Pass a string.")
    if salt:
        fields["salt"] = salt
    return {**fields, "count": count} if count > 1 else fields


def monitor_fields(rule: str, app: str) -> dict[str, object]:
    return {"action": "monitor", **_names(rule=rule, app=app)}


def ids_of(reply: UdpReply, count: int) -> list[str]:
    """Return the IDs of a reply. Raise the server's error, or IdError if the reply does not match the request."""
    _raise_for(reply)
    ids = [reply.data] if isinstance(reply.data, str) else reply.data
    if not isinstance(ids, list) or len(ids) != count or not all(isinstance(text, str) and text for text in ids):
        if count > 1 and isinstance(reply.data, str):
            raise IdError("The server returned one ID instead of several: it does not support the field count.")
        raise IdError(f"The server's reply does not contain {count} IDs: {reply.data!r:.80}.")
    return ids


def position_of(reply: UdpReply) -> MonitorReply:
    """Return the counter's position from a reply; raise the errors of `ids_of`."""
    _raise_for(reply)
    try:
        position = msgspec.convert(reply.data, _Position)
    except msgspec.ValidationError as error:
        raise IdError(f"The server's reply does not contain counter and node_offset: {reply.data!r:.80}.") from error
    return MonitorReply(position.counter, position.node_offset)


_KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, IdError)]


def error_of(reply: UdpReply) -> IdError | None:
    """Return the error of a reply, found by the first word of its message or else by its code; None for success."""
    if reply.code == 0:
        return None
    if reply.message in ("not exist", "not_exist"):
        return errors.NotExist("not exist")
    word, colon, sentence = reply.message.partition(": ")
    text = reply.message or f"the server answered code {reply.code}"
    for kind in _KINDS:
        if colon and kind.code == word:
            return kind(sentence)
    for kind in reversed(_KINDS):
        if kind.udp_code == reply.code != IdError.udp_code:
            return kind(text)
    return IdError(text)


def _raise_for(reply: UdpReply) -> None:
    error = error_of(reply)
    if error is not None:
        raise error


def _names(*, rule: str, app: str) -> dict[str, object]:
    for name, value in (("rule", rule), ("app", app)):
        if not isinstance(value, str):
            raise BadRequest(f"The type of {name} is {type(value).__name__}. Pass a string.")
    return {"rule_name": rule, "app_name": app}
