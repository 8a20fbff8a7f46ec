"""Between Python and the texts of the core: data as JSON, replies as values. Pure but for Django's lazy texts.

Texts that are not UTF-8, which other clients may have put, come as Python's surrogate escapes and go back as they were.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from django.utils.functional import Promise

from .errors import InvalidArgument, UnreadableReply

T = TypeVar("T")
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def text(reply: bytes) -> str:
    return reply.decode("utf-8", "surrogateescape")


def texts(reply: list[bytes]) -> list[str]:
    return [text(each) for each in reply]


def scores(reply: list[Any]) -> dict[str, float]:
    """Members of a sorted set with their scores, in order: pairs, or one after the other, as the protocol has it."""
    pairs = reply if not reply or isinstance(reply[0], list | tuple) else zip(reply[::2], reply[1::2], strict=True)
    return {text(member): float(score) for member, score in pairs}


def encode(value: Any) -> bytes:
    """JSON of a job's data or result.

    Beside what JSON has: dates, times, `timedelta` and `UUID` as ISO 8601 and the like, `Decimal` and lazy texts as
    text, bytes as base64, sets and tuples as lists, dataclasses and Structs as objects, enums by value. Raises
    `InvalidArgument`, which names the type that it cannot encode.
    """
    try:
        found = _encoder.encode(value)
        if b"null" in found and (path := _not_finite(msgspec.to_builtins(value, enc_hook=_more))):
            raise InvalidArgument(f"Job data must be JSON, which has neither NaN nor infinity: see data{path}.")
        return found
    except InvalidArgument:
        raise
    except RecursionError:
        raise InvalidArgument("Job data must be JSON: it is nested too deeply, or contains itself.") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidArgument(f"Job data must be JSON: {error}.") from None


def decode(data: str) -> Any:
    """The value of a job's data. Raises `UnreadableReply`."""
    try:
        return msgspec.json.decode(data)
    except (*_NOT_JSON, UnicodeEncodeError):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UnreadableReply(f"The data of the job is not JSON: {error}") from None


def reader(kind: type[T]) -> msgspec.json.Decoder[T]:
    """For `read`: made once for each kind of reply."""
    return msgspec.json.Decoder(kind)


def read(reply: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A JSON reply of the core. Raises `UnreadableReply`."""
    try:
        return decoder.decode(reply)
    except _NOT_JSON:
        try:
            return msgspec.convert(json.loads(text(reply)), decoder.type)
        except (ValueError, RecursionError) as error:
            raise UnreadableReply(f"The core replied what cannot be read: {error}") from None


def as_list(value: Any) -> list[Any]:
    """A list, which the core writes as `{}` where it is empty."""
    return value if isinstance(value, list) else []


def as_bytes(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _more(value: Any) -> Any:
    """What msgspec does not know."""
    if isinstance(value, Promise):
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"it holds a {type(value).__module__}.{type(value).__qualname__} where JSON can have none")


def _not_finite(value: Any) -> str:
    """The way to a number that is not finite, or an empty text."""
    if isinstance(value, float) and not math.isfinite(value):
        return " itself" if value else ""
    if isinstance(value, Mapping):
        return next((f"[{key!r}]{way}" for key, each in value.items() if (way := _not_finite(each))), "")
    if isinstance(value, list | tuple):
        return next((f"[{n}]{way}" for n, each in enumerate(value) if (way := _not_finite(each))), "")
    return ""


_encoder: Final = msgspec.json.Encoder(enc_hook=_more)

__all__ = ["as_bytes", "as_list", "decode", "encode", "read", "reader", "scores", "text", "texts"]
