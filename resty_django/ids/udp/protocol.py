"""JSON over UDP, as clients of id_server speak it: one object in, at most one object out.

A request has `action` (`get` or `create` make an ID, anything else monitors), `rule_name`, `app_name`, and perhaps
`salt`, `seq` and, our addition, `count`. The reply holds the request's fields, byte for byte in their values, with
`code`, `message` and `data` set by the server alone; keys are in alphabetical order.
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
    """Return the fields of any JSON object, text after it left out. Raise NotAnObject when there is none."""
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
    """Return a field that must be a string. Raise BadRequest when it is missing or something else."""
    text = value(fields.get(name))
    if not isinstance(text, str):
        raise BadRequest(f"The field {name} is missing or not a string.")
    return text


def salt_field(fields: dict[str, Raw]) -> str:
    """Return the salt; absent or not a string it counts as empty."""
    salt = value(fields.get("salt"))
    return salt if isinstance(salt, str) else ""


def count_field(fields: dict[str, Raw]) -> int | None:
    """Return how many IDs are asked for; None when the request is not for a batch."""
    if "count" not in fields:
        return None
    count = value(fields["count"])
    if isinstance(count, bool) or not isinstance(count, int):
        raise BadRequest("The count is not a whole number.")
    return count


def looks_like_reply(code: object, message: object) -> bool:
    """Return whether a datagram is what a server sends: such are never answered, so that two servers cannot talk
    forever."""
    code, message = value(code), value(message)
    return isinstance(code, int) and isinstance(message, str)


def success(fields: dict[str, Raw], data: object, message: str) -> Iterator[bytes]:
    """Yield the reply to a request that was served: the usual one, then shorter ones."""
    yield _encode({**fields, "code": 0, "data": data, "message": message})
    yield _encode({**_seq(fields), "code": 0, "data": data})


def failure(fields: dict[str, Raw], error: IdError) -> Iterator[bytes]:
    """Yield the reply to a request that was refused: the usual one, then shorter ones."""
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
    """Return what a field holds; None when it holds no JSON."""
    if not isinstance(raw, Raw):
        return raw
    try:
        return _decode_value(raw)
    except DECODE_ERRORS:
        return None
