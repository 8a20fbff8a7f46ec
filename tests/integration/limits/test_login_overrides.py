"""Overrides block log-ins; only those that name a limit of the login guard lift it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import aauthenticate, authenticate, get_user_model
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from resty_django.limits import bans
from resty_django.limits.models import LimitOverride
from resty_django.limits.overrides.current import current
from resty_django.limits.statistics.reporter import Totals, stats
from resty_django.limits.testing import no_limits
from tests.integration.limits.policy_tools import POLICIES, make_policy
from tests.integration.limits.test_overrides import everywhere, override  # noqa: F401 - fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

IP = "192.0.2.1"
ADDRESS, NAME, BOTH = "ban:login-address", "ban:login-name", "ban:login-address-and-name"


@pytest.fixture(autouse=True)
def guarded(settings: Any) -> None:
    """A site with the guard."""
    settings.AUTHENTICATION_BACKENDS = [
        "resty_django.limits.login.LoginGuard",
        "django.contrib.auth.backends.ModelBackend",
    ]
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    get_user_model().objects.create_user("alice", "alice@example.com", "right", is_staff=True)


@pytest.fixture(params=["sync", "async"])
def log_in(request: pytest.FixtureRequest) -> Any:
    """Try to log in, and return whether it succeeds."""

    async def log_in(name: str = "alice", password: str = "right", ip: str = IP) -> bool:  # noqa: S107
        credentials = {"username": name, "password": password}
        http_request = RequestFactory().get("/", REMOTE_ADDR=ip)
        if request.param == "async":
            return await aauthenticate(http_request, **credentials) is not None
        return await sync_to_async(authenticate)(http_request, **credentials) is not None

    return log_in


@sync_to_async
def replace(rate: str, key: str = IP, kind: str = "address", limit: str = "") -> None:
    """Make this the only override."""
    LimitOverride.objects.all().delete()
    override(rate, key, kind, limit)


async def fail(log_in: Any, count: int, **options: Any) -> None:
    for _ in range(count):
        assert not await log_in(password="wrong", **options)


async def stored() -> list[str]:
    return sorted(ban.limit for ban in await sync_to_async(bans.current_bans)())


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("limit", "kind", "key"), [("", "network", "192.0.2.0/24"), (ADDRESS, "address", IP), (BOTH, "address", IP)]
)
async def test_a_blocked_address_does_not_log_in(log_in: Any, limit: str, kind: str, key: str) -> None:
    assert await log_in()
    await replace("blocked", key, kind, limit)
    assert not await log_in()
    assert not await log_in("a|b|c")  # a name does not hide the address
    assert await log_in(ip="198.51.100.1")
    # A refused log-in does not count as failed.
    await fail(log_in, 9)
    assert await stored() == []


@pytest.mark.usefixtures("everywhere")
async def test_no_limits_lifts_a_block(log_in: Any) -> None:
    await replace("blocked")
    with no_limits():
        assert await log_in()
    assert not await log_in()


@pytest.mark.usefixtures("everywhere")
async def test_a_blocked_name_does_not_log_in(log_in: Any) -> None:
    await replace("blocked", "Alice ", "key", NAME)
    assert not await log_in()
    assert not await log_in(ip="198.51.100.1")
    await replace("blocked", f"{IP}|ALICE", "key", BOTH)
    assert not await log_in()
    assert await log_in(ip="198.51.100.1")
    await replace("blocked", "bob", "key", NAME)
    assert await log_in()


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(("kind", "key"), [("address", IP), ("network", "192.0.2.0/24"), ("key", "alice")])
async def test_an_override_of_all_limits_does_not_lift_the_guard(log_in: Any, kind: str, key: str) -> None:
    await replace("none", key, kind)
    await fail(log_in, 5)
    assert await stored() == ["login-address-and-name"]
    assert not await log_in()
    await replace("100/s", key, kind)
    assert not await log_in()


@pytest.mark.usefixtures("everywhere")
async def test_an_override_of_its_limit_lifts_the_guard(log_in: Any) -> None:
    await fail(log_in, 5)
    assert not await log_in()
    await replace("none", IP, "address", BOTH)
    assert await log_in()
    await fail(log_in, 24)
    # The other limits remain: 29 of 30 failures of the address have counted.
    assert await log_in()
    await fail(log_in, 1)
    assert await stored() == ["login-address", "login-address-and-name"]
    assert not await log_in()
    await replace("none", IP, "address", ADDRESS)
    assert not await log_in()  # banned by the address and the name
    assert await log_in("alice", ip="198.51.100.1")


@pytest.mark.usefixtures("everywhere")
async def test_a_name_is_not_taken_for_a_user_or_an_address(log_in: Any) -> None:
    await replace("none", "7", "user")
    await fail(log_in, 5, name="7")
    await replace("none", "198.51.100.9", "address", BOTH)
    await fail(log_in, 5, name="198.51.100.9")
    await fail(log_in, 5, name="198.51.100.9|x")
    assert await stored() == ["login-address-and-name"] * 3


async def test_by_default_the_guard_has_no_overrides(log_in: Any) -> None:
    await sync_to_async(make_policy)()
    await replace("blocked")
    assert await log_in()


@pytest.mark.usefixtures("everywhere")
def test_blocked_log_ins_are_counted_and_without_overrides_nothing_is_read() -> None:
    request = RequestFactory().get("/", REMOTE_ADDR=IP)
    assert authenticate(request, username="alice", password="right") is not None
    assert current.active is None
    with CaptureQueriesContext(connection) as queries:
        assert authenticate(request, username="alice", password="right") is not None
    assert not any(LimitOverride._meta.db_table in query["sql"] for query in queries)
    override("blocked", IP, "address", ADDRESS)
    assert authenticate(request, username="alice", password="right") is None
    stats.flush()
    assert stats.totals()[ADDRESS] == Totals(passed=2, refused=1)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": "60/m"}, "The login guard has no rate that can be replaced. Enter none or blocked."),
        ({"rate": "5"}, "The login guard has no rate that can be replaced. Enter none or blocked."),
        ({"rate": "none", "kind": "user", "key": "7"}, "Choose the kind “key”, and enter the name of the user."),
        ({"rate": "none", "limit": "ban:login"}, "Of all bans, only the login guard has overrides."),
    ],
)
def test_bad_input_is_refused_with_what_to_change(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        override(**{"limit": ADDRESS, **fields})
    assert message in str(caught.value)


@pytest.mark.usefixtures("everywhere")
def test_the_form_knows_the_limits_of_the_guard_and_a_ban_links_to_it(admin_client: Client) -> None:
    bans.add("2001:db8::/64", for_="1h", limit="login-address")
    bans.add("alice", for_="1h", limit="login-name")
    bans.add("alice", for_="1h")
    page = f"{POLICIES}limits/key/"

    def links(key: str) -> list[str]:
        html = admin_client.get(page, {"key": key}).content.decode()
        return [link.replace("&amp;", "&") for link in re.findall(r'href="(/admin/[^"]*override/add/\?[^"]*)"', html)]

    # Others are for all limits, and for limits of the process in which the key has a state.
    [network_link] = (link for link in links("2001:db8::7") if "limit=ban%3Alogin-" in link)
    assert network_link.endswith("?kind=network&key=2001%3Adb8%3A%3A%2F64&limit=ban%3Alogin-address")
    [link] = (link for link in links("alice") if "limit=ban%3Alogin-" in link)
    assert link.endswith("?kind=key&key=alice&limit=ban%3Alogin-name")
    times = {f"{name}_{part}": "" for name in ("starts_at", "ends_at") for part in (0, 1)}
    entered = {"kind": "key", "key": "alice", "limit": NAME, "rate": "none", "reason": "", **times}
    assert admin_client.post(link, entered).status_code == 302
    html = admin_client.get(page, {"key": "alice"}).content.decode()
    assert re.search(r'limitoverride/\d+/change/">none</a>', html)
