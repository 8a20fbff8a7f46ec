"""The current txid: in blocks, threads, tasks, and runs of a command."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pytest_django import Settings

from resty_django.txid import InvalidTxid, bound, carry, context, current, current_request_id, current_trace, is_txid
from resty_django.txid.traceparent import begin_trace

ID = "cbpvimguo4hkaps9lf6g"
OTHER = "b2fr5nvq5alalalalal0"


def test_nothing_is_current_outside_of_a_block() -> None:
    assert current() is None
    assert current_trace() is None


def test_a_block_has_its_own_txid_and_restores_the_previous_one() -> None:
    trace = begin_trace(ID)
    with bound(ID, trace) as block_id:
        assert (block_id, current(), current_trace()) == (ID, ID, trace)
        with bound(OTHER.upper()):
            assert (current(), current_trace()) == (OTHER, None)
        with contextlib.suppress(ZeroDivisionError), bound():
            assert current() not in (ID, OTHER, None)
            raise ZeroDivisionError
        assert current() == ID
    assert current() is None


def test_a_block_has_the_request_id_of_the_caller() -> None:
    assert (current_request_id(), context.current_ids()) == (None, {})
    with bound(ID, request_id="web-1.example_7"):
        assert current_request_id() == "web-1.example_7"
        assert context.current_ids() == {"txid": ID, "request_id": "web-1.example_7"}
        with ThreadPoolExecutor() as pool:
            assert pool.submit(carry(current_request_id)).result() == "web-1.example_7"
            assert pool.submit(current_request_id).result() is None
        assert bound(OTHER, request_id="other-id")(current_request_id)() == "other-id"
        for wrong in ("short", "a" * 129, "with space", "line\nbreak", "a,b345678", "ääääääää", 12345678, b"12345678"):
            with bound(request_id=wrong) as txid:  # type: ignore[arg-type]
                assert context.current_ids() == {"txid": txid}
    assert current_request_id() is None


def test_a_block_creates_a_txid_and_refuses_an_invalid_one() -> None:
    with bound() as block_id:
        assert is_txid(block_id)
    with pytest.raises(InvalidTxid, match="20 characters"), bound("x"):
        pass


def test_a_decorated_function_has_a_new_txid_for_each_call() -> None:
    @bound()
    def job() -> str | None:
        return current()

    assert is_txid(job())
    assert job() != job()


async def test_a_decorated_coroutine_function_has_a_txid_while_it_runs() -> None:
    @bound()
    async def job() -> str | None:
        await asyncio.sleep(0)
        return current()

    assert is_txid(await job())
    assert await job() != await job()
    with bound(ID):
        carried = carry(job.__wrapped__)  # type: ignore[attr-defined]
    assert await carried() == ID
    assert current() != ID


def test_generators_are_refused() -> None:
    def items() -> Any:
        yield current()

    async def aitems() -> Any:
        yield current()

    for decorator in (bound(), carry):
        for function in (items, aitems):
            with pytest.raises(TypeError, match="generator"):
                decorator(function)
        with pytest.raises(TypeError, match="returned a coroutine"):
            decorator(lambda: asyncio.sleep(0))()


def test_a_thread_has_the_txid_that_is_carried_to_it() -> None:
    results: dict[str, Any] = {}
    with bound(ID):
        plain = threading.Thread(target=lambda: results.update(plain=current()))
        carried = threading.Thread(target=carry(lambda: results.update(carried=current())))
    for thread in (plain, carried):
        thread.start()
        thread.join()
    assert results == {"plain": None, "carried": ID}


def test_a_carried_function_runs_in_many_threads_at_once() -> None:
    together = threading.Barrier(3)

    def work(number: int) -> tuple[int, str | None]:
        together.wait(20)
        return number, current()

    with ThreadPoolExecutor(3) as pool:
        with bound(ID):
            work_here = carry(work)
        assert list(pool.map(work_here, range(3))) == [(0, ID), (1, ID), (2, ID)]
        assert pool.submit(current).result() is None


def test_a_function_carried_from_outside_of_a_block_has_no_txid() -> None:
    outside = carry(current)
    with bound(ID):
        assert outside() is None
        assert current() == ID


async def test_tasks_and_their_threads_inherit_the_txid() -> None:
    async def work() -> list[str | None]:
        await asyncio.sleep(0)
        return [current(), await asyncio.to_thread(current)]

    with bound(ID):
        task = asyncio.create_task(work())
    with bound(OTHER):
        assert await work() == [OTHER, OTHER]
    assert await task == [ID, ID]
    assert current() is None


# --- runs of a command -------------------------------------------------------------------------------------------


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_run_txids", {})


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("program", ["manage.py", "./manage.py", "/srv/site/manage.py", "/usr/bin/django-admin"])
def test_a_run_of_a_command_has_one_txid(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program, "migrate"])
    run_id = current()
    assert is_txid(run_id)
    with bound(ID):
        assert current() == ID
    with ThreadPoolExecutor(4) as pool:
        assert {pool.submit(current).result() for _ in range(8)} == {run_id}


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize(
    "argv", [[], [""], ["/usr/bin/gunicorn"], ["mymanage.py"], ["/lib/pytest/__main__.py"], ["manage.py/x"]]
)
def test_runs_of_other_programs_have_no_txid(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert current() is None


@pytest.mark.usefixtures("_fresh")
def test_the_programs_are_a_setting(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(sys, "argv", ["/srv/site/nightly", "--all"])
    settings.RESTY_DJANGO = {"TXID": {"COMMANDS": ["site/nightly"]}}
    assert is_txid(current())
    settings.RESTY_DJANGO = {"TXID": {"COMMANDS": []}}
    assert current() is None


@pytest.mark.usefixtures("_fresh")
def test_wrong_settings_do_not_break_log_lines(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(sys, "argv", ["manage.py"])
    settings.RESTY_DJANGO = {"TXID": {"NONSENSE": 1}}
    assert current() is None
