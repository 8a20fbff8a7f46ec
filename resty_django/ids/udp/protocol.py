"""JSON over UDP, compatible with id_server: one object per request, at most one object as reply.

A request has `action` (`get` or `create` issues an ID, anything else monitors), `rule_name`, `app_name`, and optionally
`salt`, `seq` and, in addition to id_server, `count`. The reply contains the request's fields, their values unchanged
byte for byte, with `code`, `message` and `data` set by the server only; keys are in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..errors import BadRequest, IdError

CREATE = frozenset(("get", "create"))
SUCCESS, OK = "success", "ok"


class UdpMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A request with the usual fields; setting code, data and message turns it into its reply.

    The fields are in alphabetical order, as in a reply.
    """

    action: str
    app_name: str
    code: Any = UNSET
    count: int | UnsetType = UNSET
    data: Any = UNSET
    message: Any = UNSET
    rule_name: str
    salt: str | UnsetType = UNSET
    seq: Raw | UnsetType = UNSET


class NotAnObject(ValueError):
    """The datagram does not begin with a JSON object."""


decode = msgspec.json.Decoder(UdpMessage).decode
encode_message = msgspec.json.Encoder().encode
_encode = msgspec.json.Encoder(order="sorted").encode
_decode_any = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_value = msgspec.json.Decoder().decode
_lax = JSONDecoder()

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors that `decode` raises for anything except a request with the usual fields and types."""


def decode_lax(datagram: bytes) -> dict[str, Raw]:
    """Return the fields of a JSON object; ignore text after it. Raise NotAnObject if there is no object."""
    try:
        text = datagram.decode()
        if not text.startswith("{"):
            raise NotAnObject("no { at the beginning")
        try:
            return _decode_any(datagram)
        except msgspec.DecodeError:
            _, end = _lax.raw_decode(text)
            return _decode_any(text[:end].encode())
    except (ValueError, RecursionError) as error:
        raise NotAnObject(str(error)) from None


def text_field(fields: dict[str, Raw], name: str) -> str:
    """Return a field that must be a string. Raise BadRequest if it is missing or has another type."""
    text = value(fields.get(name))
    if not isinstance(text, str):
        raise BadRequest(f"The field {name} is missing or not a string.")
    return text


def salt_field(fields: dict[str, Raw]) -> str:
    """Return the salt, or "" if it is missing or not a string."""
    salt = value(fields.get("salt"))
    return salt if isinstance(salt, str) else ""


def count_field(fields: dict[str, Raw]) -> int | None:
    """Return the number of requested IDs, or None if the request is not for a batch."""
    if "count" not in fields:
        return None
    count = value(fields["count"])
    if isinstance(count, bool) or not isinstance(count, int):
        raise BadRequest("The count is not a whole number.")
    return count


def looks_like_reply(code: object, message: object) -> bool:
    """Return whether a datagram looks like a reply. Servers never answer replies, to prevent loops between servers."""
    code, message = value(code), value(message)
    return isinstance(code, int) and isinstance(message, str)


def success(fields: dict[str, Raw], data: object, message: str) -> Iterator[bytes]:
    """Yield the possible replies to a successful request: the usual one, then shorter ones."""
    yield _encode({**fields, "code": 0, "data": data, "message": message})
    yield _encode({**_seq(fields), "code": 0, "data": data})


def failure(fields: dict[str, Raw], error: IdError) -> Iterator[bytes]:
    """Yield the possible replies to a refused request: the usual one, then shorter ones."""
    echoed = {name: value for name, value in fields.items() if name != "data"}
    word = error.code
    message = str(error) if word == "not_exist" else f"{word}: {error}"
    yield _encode({**echoed, "code": error.udp_code, "message": message})
    yield _encode({**echoed, "code": error.udp_code, "message": word})
    yield _encode({**_seq(fields), "code": error.udp_code, "message": word})
    yield _encode({**_seq(fields), "code": error.udp_code})


def _seq(fields: dict[str, Raw]) -> dict[str, Raw]:
    return {"seq": fields["seq"]} if "seq" in fields else {}


def value(raw: object) -> object:
    """Return the decoded value of a field, or None if it is not JSON."""
    if not isinstance(raw, Raw):
        return raw
    try:
        return _decode_value(raw)
    except DECODE_ERRORS:
        return None
