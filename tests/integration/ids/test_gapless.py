"""Gapless rules, as for invoices: the number belongs to the caller's transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import override_settings

from resty_django.ids import amonitor, anext_id, anext_ids, monitor, next_id, next_ids
from resty_django.ids import service as service_module
from resty_django.ids.errors import (
    BadCount,
    BadName,
    BadSalt,
    Exhausted,
    NeedsTransaction,
    RuleFailed,
    StepChanged,
    TooManyNames,
)
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service.id_service import IdService

MakeRule = Callable[..., IdRule]
real = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

LUA = """
function min_counter() return 0 end
function max_counter() return 999999 end
function reset_seconds() return 0 end
function create_id(counter, now, salt) return string.format("I%06d%s", counter:generate_counter(), salt) end
"""


@pytest.fixture
def invoice(make_rule: MakeRule) -> IdRule:
    return make_rule("invoice", "R{counter:06d}", max_counter=999_999, min_counter=1, gapless=True)


def took(count: int = 1, rule: str = "invoice", app: str = "", salt: str = "") -> Any:
    with transaction.atomic():
        return next_id(rule, app, salt) if count == 1 else next_ids(rule, count, app, salt)


class TestInTransactions:
    pytestmark = real

    def test_numbers_follow_one_another(self, invoice: IdRule) -> None:
        assert [took() for _ in range(3)] == ["R000001", "R000002", "R000003"]
        assert took(3) == ["R000004", "R000005", "R000006"]
        assert took(app="shop") == "R000001"
        assert monitor("invoice") == (6, 0)

    def test_a_rollback_returns_the_number(self, invoice: IdRule) -> None:
        assert took() == "R000001"
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
                assert next_id("invoice") == "R000002"
                assert next_id("invoice") == "R000003"
                1 / 0  # noqa: B018
        assert took() == "R000002"

    def test_a_savepoint_rolled_back_returns_its_numbers(self, invoice: IdRule) -> None:
        with transaction.atomic():
            assert next_id("invoice") == "R000001"
            with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
                assert next_id("invoice") == "R000002"
                1 / 0  # noqa: B018
            assert next_id("invoice") == "R000002"
        assert took() == "R000003"

    def test_the_first_number_rolled_back_leaves_no_counter(self, invoice: IdRule) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
            next_id("invoice")
            1 / 0  # noqa: B018
        assert not IdCounter.objects.exists()
        assert took() == "R000001"

    def test_outside_a_transaction_it_is_refused(self, invoice: IdRule) -> None:
        with pytest.raises(NeedsTransaction):
            next_id("invoice")
        with pytest.raises(NeedsTransaction):
            asyncio.run(anext_id("invoice"))
        with pytest.raises(NeedsTransaction):
            service_module.service().counter("invoice", "")
        assert not IdCounter.objects.exists()

    def test_gapless_rules_raise_the_usual_errors(self, make_rule: MakeRule) -> None:
        make_rule("invoice", "{salt:2}{counter:02d}", max_counter=5, gapless=True, max_names=1)
        with pytest.raises(BadName):
            took(app="a b", salt="ab")
        with pytest.raises(BadSalt):
            took(salt="a")
        assert took(4, salt="ab") == ["ab00", "ab01", "ab02", "ab03"]
        with pytest.raises(TooManyNames):
            took(app="other", salt="ab")
        with pytest.raises(BadCount):
            took(3, salt="ab")
        assert took(2, salt="ab") == ["ab04", "ab05"]
        with pytest.raises(Exhausted):
            took(salt="ab")
        with override_settings(RESTY_DJANGO={"IDS": {"STEP": 2}}), pytest.raises(StepChanged):
            took(salt="ab")

    def test_each_year_begins_with_the_first_number(self, make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch) -> None:
        make_rule(
            "invoice", "{now:%Y}-{counter:04d}", max_counter=9999, min_counter=1, reset_calendar="year", gapless=True,
            timezone="Europe/Berlin",
        )  # fmt: skip
        clock = [datetime(2026, 12, 31, 22, 59, 59, tzinfo=UTC).timestamp()]
        service = IdService(lambda: clock[0])
        monkeypatch.setattr(service_module, "_service", service)
        assert [took(), took()] == ["2026-0001", "2026-0002"]
        clock[0] += 1
        assert took() == "2027-0001"
        clock[0] -= 3600
        assert took() == "2027-0002"

    def test_a_lua_rule_can_be_gapless(self, make_rule: MakeRule) -> None:
        pytest.importorskip("lupa")
        make_rule("invoice", LUA, kind="lua", max_counter=999_999, gapless=True)
        assert took(salt="x") == "I000000x"
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
            assert next_id("invoice") == "I000001"
            1 / 0  # noqa: B018
        assert took(2) == ["I000001", "I000002"]

    def test_a_script_takes_one_number_for_a_gapless_id(self, make_rule: MakeRule) -> None:
        pytest.importorskip("lupa")
        twice = LUA.replace("counter:generate_counter()", "counter:generate_counter() + counter:generate_counter()")
        make_rule("invoice", twice, kind="lua", max_counter=999_999, gapless=True, fixed_length=False)
        with pytest.raises(RuleFailed, match="number"):
            took()
        assert not IdCounter.objects.exists()

    def test_callers_at_once_leave_neither_gap_nor_duplicate(self, invoice: IdRule) -> None:
        """Some roll back; who gets a lock in time, and a number, is for the database to say."""

        def work(worker: int) -> list[str]:
            committed = []
            try:
                for n in range(25):
                    try:
                        with transaction.atomic():
                            number = next_id("invoice")
                            if (worker + n) % 4 == 0:
                                raise ZeroDivisionError
                        committed.append(str(number))
                    except ZeroDivisionError:
                        continue
            finally:
                connections.close_all()
            return committed

        with ThreadPoolExecutor(5) as pool:
            kept = [made for mine in pool.map(work, range(5)) for made in mine]
        assert len(kept) > 80
        assert sorted(kept) == [f"R{number:06d}" for number in range(1, len(kept) + 1)]

    def test_callers_at_once_make_the_first_counter_without_an_error(self, invoice: IdRule) -> None:
        def work(worker: int) -> list[str]:
            try:
                return [str(took(app=f"app{n}")) for n in range(12)]
            finally:
                connections.close_all()

        with ThreadPoolExecutor(6) as pool:
            ids = list(pool.map(work, range(6)))
        for of_app in zip(*ids, strict=True):
            assert sorted(of_app) == [f"R{number:06d}" for number in range(1, 7)]

    def test_the_second_caller_waits_for_the_first(self, invoice: IdRule) -> None:
        took()

        def second() -> Any:
            try:
                began = time.monotonic()
                return took(), time.monotonic() - began
            finally:
                connections.close_all()

        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic():
                assert next_id("invoice") == "R000002"
                waiting = pool.submit(second)
                time.sleep(0.4)
                assert not waiting.done()
            number, waited = waiting.result(20)
        assert number == "R000003"
        assert waited > 0.3


@pytest.mark.django_db
class TestEager:
    """EAGER, for test suites that wrap each test in a transaction: no thread, everything in that transaction."""

    @pytest.fixture(autouse=True)
    def _eager(self) -> Any:
        with override_settings(RESTY_DJANGO={"IDS": {"EAGER": True}}):
            yield

    @pytest.mark.parametrize("start", [0, 7])
    def test_ids_are_made_inside_the_tests_transaction(self, make_rule: MakeRule, start: int) -> None:
        """Twice, with other rules of one name: what the first run left in memory must not show in the second."""
        make_rule(min_counter=start)
        assert next_id("order") == f"{start:09d}"
        assert next_ids("order", 2) == [f"{start + 1:09d}", f"{start + 2:09d}"]
        assert monitor("order") == (start + 2, 0)
        assert IdCounter.objects.get().bound == start + 3
        assert not service_module.service().reservations.running

    def test_an_edit_takes_effect_at_once(self, make_rule: MakeRule) -> None:
        rule = make_rule()
        next_id("order")
        rule.source = "X{counter:09d}"
        rule.save()
        assert next_id("order") == "X000000001"

    def test_gapless_rules_work_too(self, make_rule: MakeRule) -> None:
        make_rule("invoice", "R{counter:06d}", max_counter=999_999, gapless=True)
        assert next_id("invoice") == "R000000"
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
            assert next_id("invoice") == "R000001"
            1 / 0  # noqa: B018
        assert next_id("invoice") == "R000001"

    def test_asynchronous_callers_use_the_same_transaction(self, make_rule: MakeRule) -> None:
        from asgiref.sync import async_to_sync

        make_rule()
        assert async_to_sync(anext_id)("order") == "000000000"
        assert next_id("order") == "000000001"
        assert async_to_sync(anext_ids)("order", 2) == ["000000002", "000000003"]
        assert async_to_sync(amonitor)("order") == (3, 0)
