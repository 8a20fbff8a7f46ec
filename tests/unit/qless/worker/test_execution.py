"""The command that ends a job."""

from __future__ import annotations

from enum import IntEnum

import pytest

from resty_django.qless.errors import InvalidArgument
from resty_django.qless.worker import execution


class Text(str):
    __slots__ = ()


class Level(IntEnum):
    HIGH = 3


def test_only_values_that_are_not_plain_are_converted() -> None:
    sent = execution._sendable(("short", b"data", 7, 0.5, Text("own"), Level.HIGH))
    assert sent == ("short", b"data", 7, 0.5, "own", 3)
    assert [type(value) for value in sent] == [str, bytes, int, float, str, int]


@pytest.mark.parametrize("long", ["four", b"four", Text("four")])
def test_a_value_that_the_server_would_refuse_is_refused(long: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "MAX_ARGUMENT", 3)
    with pytest.raises(InvalidArgument, match=r"has 4 bytes\. The server accepts at most 3"):
        execution._sendable(("two", long, Level.HIGH))
