"""JSON over UDP, as clients of the original id_server speak it: one object in, at most one object out.

A request has `action` (`get` or `create` make an ID, anything else monitors), `rule_name`, `app_name`, and perhaps
`salt`, `seq` and, our addition, `count`. The reply holds the request's fields, byte for byte in their values, with
`code`, `message` and `data` set by the server alone; keys are in alphabetical order.
"""

from __future__ import annotations

from json import JSONDecoder
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..errors import BadRequest, IdError

CREATE = frozenset(("get", "create"))
SUCCESS, OK = "success", "ok"


class Message(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A request of the usual fields; becomes its own reply when code, data and message are set.

    The fields stand in alphabetical order, as in a reply.
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


decode = msgspec.json.Decoder(Message).decode
encode_message = msgspec.json.Encoder().encode
_encode = msgspec.json.Encoder(order="sorted").encode
_decode_any = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_value = msgspec.json.Decoder().decode
_lax = JSONDecoder()

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What `decode` raises for anything but a request of the usual fields in their usual types."""


def decode_lax(datagram: bytes) -> dict[str, Raw]:
    """The fields of any JSON object, text after it left out; NotAnObject when there is none."""
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
    """A field that must be a string; BadRequest when it is missing or something else."""
    found = value(fields.get(name))
    if not isinstance(found, str):
        raise BadRequest(f"{name} is missing or not a string")
    return found


def salt_field(fields: dict[str, Raw]) -> str:
    """The salt; absent or not a string it counts as empty."""
    found = value(fields.get("salt"))
    return found if isinstance(found, str) else ""


def count_field(fields: dict[str, Raw]) -> int | None:
    """How many IDs are asked for; None when the request is not for a batch."""
    if "count" not in fields:
        return None
    found = value(fields["count"])
    if isinstance(found, bool) or not isinstance(found, int):
        raise BadRequest("count is not a whole number")
    return found


def looks_like_reply(code: object, message: object) -> bool:
    """Whether a datagram is what a server sends: such are never answered, so that two servers cannot talk for ever."""
    code, message = value(code), value(message)
    return isinstance(code, int) and isinstance(message, str)


def success(fields: dict[str, Raw], data: object, message: str) -> bytes:
    """The reply to a request that was served."""
    return _encode({**fields, "code": 0, "data": data, "message": message})


def failure(fields: dict[str, Raw], error: IdError) -> bytes:
    """The reply to a request that was refused."""
    rest = {name: value for name, value in fields.items() if name != "data"}
    message = str(error) if error.code == "not_exist" else f"{error.code}: {error}"
    return _encode({**rest, "code": error.udp_code, "message": message})


def value(raw: object) -> object:
    """What a field holds; None when it holds no JSON."""
    if not isinstance(raw, Raw):
        return raw
    try:
        return _decode_value(raw)
    except DECODE_ERRORS:
        return None
