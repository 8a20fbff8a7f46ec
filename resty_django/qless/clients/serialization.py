"""Conversion between Python and the core's strings: data to JSON, replies to values. Pure except for lazy strings.

Bytes that are not UTF-8, which other clients may have put, become Python's surrogate escapes and are sent back
unchanged. Other lone surrogates are replaced before they are sent, so that no string can stop a worker.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import GenericAlias
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from django.db.models import Model, QuerySet
from django.utils.functional import Promise

from resty_django.text import builtin_value

from ..errors import InvalidArgument, UnreadableReply

T = TypeVar("T")
LuaList: TypeAlias = list[T] | dict[str, T]
"""A list in a reply: Lua writes an empty one as `{}`."""
SURROGATE_HANDLER: Final = "resty_django.qless"
"""Name of the codec error handler that turns surrogate escapes into their bytes, and other surrogates into U+FFFD."""
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def text(reply: bytes) -> str:
    return reply.decode("utf-8", "surrogateescape")


def texts(reply: list[bytes]) -> list[str]:
    return [text(element) for element in reply]


def scores(reply: list[Any]) -> dict[str, float]:
    """Return the members of a sorted set with their scores, in order. `reply`: pairs, or a flat list (RESP2)."""
    pairs = reply if not reply or isinstance(reply[0], list | tuple) else zip(reply[::2], reply[1::2], strict=True)
    return {text(member): float(score) for member, score in pairs}


def read_latency(reply: bytes | None) -> float | None:
    """Return one age of the reply of the command `latency`, in seconds; None if no job is runnable."""
    return None if reply is None else float(reply)


def encode(value: object, what: str = "data") -> bytes:
    """Return the JSON of a job's data or result; `what` names it in messages.

    Besides JSON types, it accepts dates, times and `timedelta` (as ISO 8601), `UUID`, `Decimal` and lazy strings (as
    strings), bytes (as base64), sets and tuples (as lists), dataclasses and Structs (as objects), and enums (by value).
    Raises `InvalidArgument`, which names the type that cannot be encoded.
    """
    try:
        encoded = _encoder.encode(value)
        if b"null" in encoded and (path := _not_finite(msgspec.to_builtins(value, enc_hook=_encode_other))):
            raise InvalidArgument(f"Job {what} must be JSON, which has neither NaN nor infinity: see {what}{path}.")
        return encoded
    except InvalidArgument:
        raise
    except RecursionError:
        raise InvalidArgument(f"Job {what} must be JSON: it is nested too deeply, or contains itself.") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidArgument(f"Job {what} must be JSON: {error}.") from None


def ordered(value: object) -> object:
    """Return a value whose sets are lists in the order of their JSON: a set's own order differs between processes."""
    if isinstance(value, (set, frozenset)):
        return sorted(map(ordered, value), key=encode)
    if isinstance(value, (list, tuple)):
        return [*map(ordered, value)]
    return {key: ordered(item) for key, item in value.items()} if isinstance(value, dict) else value


def is_finite(value: object) -> bool:
    """Return whether a value contains neither NaN nor infinity. Values that are not JSON for other reasons count as
    finite."""
    try:
        return not _not_finite(msgspec.to_builtins(value, enc_hook=_encode_other))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return True


def decode(data: str) -> Any:
    """Return the value of a job's data. Raises `UnreadableReply`."""
    try:
        return msgspec.json.decode(data)
    except (*_NOT_JSON, UnicodeEncodeError):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UnreadableReply(f"The data of the job is not JSON: {error}.") from None


_decoder: Final[Callable[[object], msgspec.json.Decoder[Any]]] = cache(msgspec.json.Decoder)


def read(reply: bytes, kind: type[T]) -> T:
    """Decode a JSON reply of the core into a value of this type. Raises `UnreadableReply`."""
    value: T = _read(reply, kind)
    return value


def read_list(reply: bytes, kind: type[T]) -> list[T]:
    """Do the same for a list of values of this type."""
    values: list[T] = [] if reply == b"{}" else _read(reply, GenericAlias(list, (kind,)))
    return values


def _read(reply: bytes, kind: object) -> Any:
    try:
        return _decoder(kind).decode(reply)
    except _NOT_JSON:
        try:
            return msgspec.convert(json.loads(text(reply)), kind)
        except (ValueError, RecursionError) as error:
            raise UnreadableReply(f"The reply of the core cannot be read: {error}.") from None


def as_list(value: LuaList[T]) -> list[T]:
    """Return the list in a field of a reply."""
    return value if isinstance(value, list) else []


def as_bytes(value: Any) -> Any:
    """Return a string as the bytes to send, anything else unchanged. Never raises."""
    return str.encode(value, "utf-8", SURROGATE_HANDLER) if isinstance(value, str) else value


def readable(value: str, most: int | None = None) -> str:
    """Return an untrusted string for display: at most `most` characters, each lone surrogate replaced."""
    return re.sub("[\ud800-\udfff]", "\ufffd", str.__str__(value)[:most])


def _replace_surrogates(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    codes = map(ord, error.object[error.start : error.end])
    unknown = "\ufffd".encode()
    return b"".join(bytes((code - 0xDC00,)) if 0xDC80 <= code <= 0xDCFF else unknown for code in codes), error.end


def _encode_other(value: object) -> str | float:
    """Encode the types that msgspec does not know."""
    if isinstance(value, Promise):
        return str(value)
    converted = builtin_value(value)
    if converted is not None:
        return converted
    advice = "Pass text, numbers, lists and dicts"
    if isinstance(value, Model):
        advice = "Pass its primary key, and read the object from the database where the job runs"
    elif isinstance(value, QuerySet):
        advice = "Pass a list of primary keys, and read the objects from the database where the job runs"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(f"it contains a {kind}, which JSON cannot represent. {advice}")


def _not_finite(value: object) -> str:
    """Return the path to a number that is not finite, or an empty string."""
    if isinstance(value, float) and not math.isfinite(value):
        return " itself" if value else ""
    if isinstance(value, Mapping):
        return next((f"[{key!r}]{path}" for key, child in value.items() if (path := _not_finite(child))), "")
    if isinstance(value, list | tuple):
        return next((f"[{n}]{path}" for n, child in enumerate(value) if (path := _not_finite(child))), "")
    return ""


codecs.register_error(SURROGATE_HANDLER, _replace_surrogates)

_encoder: Final = msgspec.json.Encoder(enc_hook=_encode_other)
