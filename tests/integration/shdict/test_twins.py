"""The calls of LMDB's dictionaries for asyncio: each forwards to the call without the `a`."""

from __future__ import annotations

import inspect
from unittest import mock

import pytest

from resty_django.shdict import SharedDict
from resty_django.shdict.lmdb import LmdbDict

TWINS = sorted(name for name in vars(SharedDict) if hasattr(SharedDict, f"a{name}"))


def test_lmdb_has_the_twins_of_the_base_class() -> None:
    assert len(TWINS) > 25
    assert [name for name in TWINS if f"a{name}" in vars(LmdbDict)] == []


@pytest.mark.parametrize("name", TWINS)
async def test_a_twin_forwards_its_arguments_and_the_result(name: str) -> None:
    """Every argument reaches the parameter of the same name."""
    call, twin = inspect.signature(getattr(SharedDict, name)), inspect.signature(getattr(SharedDict, f"a{name}"))
    assert twin.parameters == call.parameters
    arguments = {parameter: object() for parameter in list(twin.parameters)[1:]}
    dictionary = LmdbDict("twins", 1024 * 1024)
    result = [object()]
    with mock.patch.object(LmdbDict, name, autospec=True, return_value=result) as called:
        reply = getattr(dictionary, f"a{name}")(**arguments)
        reply = [item async for item in reply] if inspect.isasyncgen(reply) else await reply
    assert called.call_count == 1
    assert call.bind(*called.call_args.args, **called.call_args.kwargs).arguments == {"self": dictionary, **arguments}
    if call.return_annotation != "None":
        assert reply == result
