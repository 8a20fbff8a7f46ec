"""Overrides of users and addresses apply to plain code and to jobs only if the code says what its keys are."""

from __future__ import annotations

import re
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from resty_django.limits import FixedWindow, Limited, limited
from resty_django.limits.callers.key_kinds import stored_key
from resty_django.limits.models import LimitOverride
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics.reporter import Totals, stats
from resty_django.qless.middleware.limits import Rate
from resty_django.qless.outcomes import RequeueLater
from resty_django.qless.worker.middleware import Limit
from tests.integration.limits.policy_tools import POLICIES, make_policy
from tests.integration.limits.test_key_search import rows
from tests.integration.limits.test_overrides import everywhere, override  # noqa: F401 - fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

aoverride = sync_to_async(override)


def passes(key: object, key_kind: str | None, count: int = 5) -> int:
    """Return how many of the calls of a function with the limit 1/h pass."""

    @limited("1/h", key=lambda value: value, key_kind=key_kind, name="calls")
    def call(value: object) -> bool:
        return True

    passed = 0
    for _ in range(count):
        try:
            passed += call(key)
        except Limited:
            continue
    return passed


# --- functions -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("everywhere")
def test_users_and_addresses_of_functions() -> None:
    override("3/h", "7", "user")
    override("none", "192.0.2.0/24", "network")
    override("blocked", "2001:db8::1", "address")
    assert passes(7, "user") == 3
    assert passes("8", "user") == 1
    assert passes("192.0.2.7", "address") == 5
    assert passes(ip_address("192.0.2.8"), "address") == 5
    assert passes("198.51.100.7", "address") == 1
    # IPv6 clients are counted by network.
    assert passes("2001:db8::2", "address") == 0
    assert passes("2001:db8::/64", "address") == 0
    assert passes("2001:db8:1::2", "address") == 1
    assert passes("2001:db8:1::3", "address") == 0


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("key", ["7", "user:7", "192.0.2.7", "ip:192.0.2.7", "192.0.2.0/24"])
def test_a_text_is_not_taken_for_a_user_or_an_address(key: str) -> None:
    override("none", "7", "user")
    override("none", "192.0.2.7", "address")
    override("none", "192.0.2.0/24", "network")
    assert passes(key, None) == 1
    override("none", key, "key")
    assert passes(key, None) == 5


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("key", ["192.0.2.0/25", "192.0.2.7/32", "192.0.2.7|x", "user:7", "-", "x" * 300])
def test_texts_that_are_not_addresses_are_replaced_by_a_hash(key: str) -> None:
    override("none", "192.0.2.0/24", "network")
    assert re.fullmatch("~[0-9a-f]{32}", stored_key(key, "address"))
    assert passes(key, "address") == 1


def test_keys_are_stored_by_their_kind() -> None:
    assert stored_key(" 192.0.2.7:443 ", "address") == "192.0.2.7"
    assert stored_key("::ffff:192.0.2.7", "address") == "192.0.2.7"
    assert stored_key("", "address") == stored_key("", "user") == "-"
    assert stored_key("a|b", "user").startswith("~")
    assert stored_key("a|b", None) == "a|b"


@pytest.mark.usefixtures("everywhere")
async def test_coroutine_functions_have_kinds_of_keys() -> None:
    await aoverride("none", "7", "user")

    @limited("1/h", key=lambda value: value, key_kind="user", name="acalls")
    async def call(value: object) -> bool:
        return True

    assert [await call(7) for _ in range(3)] == [True] * 3


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: limited("1/h", key=str, key_kind="zz"), ValueError, 'Use "user" or "address"'),
        (lambda: limited("1/h", key=str, key_kind="adress"), ValueError, 'Did you mean "address"'),
        (lambda: limited("1/h", key_kind="user"), TypeError, "so it needs key="),
    ],
)
def test_wrong_arguments(wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()


# --- jobs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
def run_job(request: pytest.FixtureRequest) -> Any:
    """Run a job inside of a middleware. Return None if it has run, else the seconds after which it is tried again."""

    async def run_job(middleware: Any, **data: Any) -> float | None:
        job = SimpleNamespace(queue_name="mail", data=data, retries_left=3)
        try:
            if request.param == "async":
                around = middleware(job)
                await anext(around)
                with pytest.raises(StopAsyncIteration):
                    await anext(around)
            else:
                await sync_to_async(_run)(middleware, job)
        except RequeueLater as later:
            return later.delay
        return None

    return run_job


def _run(middleware: Any, job: Any) -> None:
    around = middleware(job)
    next(around)
    with pytest.raises(StopIteration):
        next(around)


def by_customer(limiter: Any = None, **options: Any) -> Limit:
    limiter = limiter or FixedWindow(1, 3600, prefix="mails:", name="mails")
    return Limit(limiter, lambda job: job.data["customer"], wait=0, **options)


async def ran(run_job: Any, middleware: Any, count: int = 4, customer: str = "7") -> int:
    return [await run_job(middleware, customer=customer) for _ in range(count)].count(None)


@sync_to_async
def totals() -> dict[str, Totals]:
    stats.flush()
    return {name: counts for name, counts in stats.totals().items() if counts.all}


@pytest.mark.usefixtures("everywhere")
async def test_limits_of_jobs_are_counted_and_overridden(run_job: Any) -> None:
    middleware = by_customer()
    assert await ran(run_job, middleware, 1) == 1
    await aoverride("3/h", "7", "key", "job:mails")
    assert await ran(run_job, middleware, 5) == 2
    assert await totals() == {"job:mails": Totals(passed=3, refused=3)}
    row = await aoverride("none", "8", "key", "job:mails")
    assert await ran(run_job, middleware, customer="8") == 4
    assert (await totals())["job:mails"] == Totals(passed=3, refused=3)
    row.rate = "blocked"
    await row.asave()
    # A blocked job is tried again soon, because the block may be lifted.
    assert await run_job(middleware, customer="8") == 60
    assert (await totals())["job:mails"] == Totals(passed=3, refused=4)


@pytest.mark.usefixtures("everywhere")
async def test_users_of_jobs(run_job: Any) -> None:
    await aoverride("none", "7", "user")
    assert await ran(run_job, by_customer()) == 1
    assert await ran(run_job, by_customer(key_kind="user")) == 4
    with pytest.raises(ValueError, match="key_kind of a limit of jobs"):
        await run_job(by_customer(key_kind="ip"), customer="7")


async def test_overrides_of_a_policy_apply_to_its_jobs_by_default(run_job: Any) -> None:
    await sync_to_async(make_policy)("mails", limit=1)
    middleware = by_customer("mails")
    assert await ran(run_job, middleware, 1) == 1
    await aoverride("3/h", "7", "key", "mails")
    assert await ran(run_job, middleware, 5) == 2
    assert await totals() == {"mails": Totals(passed=3, refused=3)}
    await aoverride("none", "8", "key")
    assert await ran(run_job, middleware, customer="8") == 4
    other = by_customer(FixedWindow(1, 3600, prefix="others:", name="others"))
    assert await ran(run_job, other, customer="8") == 1  # OVERRIDES is "policies"


@pytest.mark.usefixtures("everywhere")
def test_a_rate_of_jobs() -> None:
    rate = Rate("1/h", "reports")
    job = SimpleNamespace(queue_name="mail", data={}, retries_left=3)
    override("blocked", "reports", "key", "job:reports")
    with pytest.raises(RequeueLater):
        _run(rate, job)
    (location,) = catalog.counted_limits()["job:reports"].locations
    assert location.startswith(f"{__name__}:")


def test_a_rate_of_jobs_may_have_an_empty_name() -> None:
    rate = Rate("1/h", "")
    job = SimpleNamespace(queue_name="mail", data={}, retries_left=3)
    _run(rate, job)
    with pytest.raises(RequeueLater):
        _run(rate, job)


async def test_other_limiters_are_used_as_they_are(run_job: Any) -> None:
    class Slot:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None: ...

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *error: object) -> None: ...

    class Own:
        def slot(self, key: object, wait: float | None) -> Slot:
            return Slot()

    assert await ran(run_job, by_customer(Own())) == 4
    assert await totals() == {}


@pytest.mark.usefixtures("everywhere")
def test_a_limit_of_jobs_is_listed_and_found(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_limits", {})
    middleware = by_customer()
    for _ in range(2):
        try:
            _run(middleware, SimpleNamespace(queue_name="mail", data={"customer": "7"}, retries_left=3))
        except RequeueLater:
            break
    (row,) = rows(admin_client.get(f"{POLICIES}limits/key/", {"key": "7"}).content.decode())
    assert row.startswith("mails Jobs 1 request per hour")
    assert "7 Add override refused 0" in row
    html = admin_client.get(POLICIES, {"q": "jobs"}).content.decode()
    assert f"{__name__}:" in html
    assert LimitOverride.objects.count() == 0
