"""Calls for sync code and for asyncio that are made of one function."""

from __future__ import annotations

import asyncio

import pytest

from resty_django.sansio import Step, Steps, twins


class Doubler:
    def _double(self, number: int, *, times: int = 1) -> Steps[int]:
        """Return the double of a number."""
        for _ in range(times):
            number += yield Step(int, self._slowly, (number,))
        return number

    async def _slowly(self, number: int) -> int:
        await asyncio.sleep(0)
        return number

    double, adouble = twins(_double)


async def test_sync_and_async_runners_perform_the_same_steps() -> None:
    doubler = Doubler()
    assert doubler.double(3, times=2) == await doubler.adouble(3, times=2) == 12
    with pytest.raises(TypeError, match="positional arguments"):
        doubler.double(3, 2)  # type: ignore[call-arg]


def test_twins_have_names_and_docstrings() -> None:
    assert (Doubler.double.__name__, Doubler.adouble.__name__) == ("double", "adouble")
    assert Doubler.double.__doc__ == "Return the double of a number."
    assert Doubler.adouble.__doc__ == "Do the same as `double`."
