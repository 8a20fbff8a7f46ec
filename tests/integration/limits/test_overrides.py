"""Overrides change a limit for one user, address, network or key: at once, and in every process."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from resty_django.limits import (
    FixedWindow,
    Limited,
    limit,
    limit_conn,
    limit_count,
    limit_rate,
    limit_rate_either,
    limit_req,
    limit_window,
    limited,
)
from resty_django.limits.callers import keys
from resty_django.limits.models import LimitOverride
from resty_django.limits.overrides.current import UNREAD, current
from resty_django.limits.policies import registry
from resty_django.limits.policies.enforcers import enforcer_for
from resty_django.limits.requests.check import LimitCheck
from resty_django.limits.requests.enforcer import Enforcer
from resty_django.limits.requests.request_limit import LimitOptions, RequestLimit
from resty_django.limits.requests.results import LimitResult
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics.reporter import stats
from resty_django.limits.testing import frozen_limits, no_limits
from resty_django.shdict import shdicts
from tests.forkserver import ROOT
from tests.integration.limits.policy_tools import Worker, breakable, make_policy, policy_of
from tests.integration.limits.view_tools import Site, change, drf_view, sync_requests

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

IP = "192.0.2.1"
OTHER_IP = "192.0.2.2"
WITHIN = 0.1
"""Seconds in which a change acts in the other processes."""


@pytest.fixture
def everywhere(settings: Any, limits_site: Any) -> None:
    """Overrides apply to all limits."""
    change(settings, OVERRIDES="all")


def override(rate: str, key: str = IP, kind: str = "address", limit: str = "", **fields: Any) -> LimitOverride:
    row = LimitOverride(kind=kind, key=key, limit=limit, rate=rate, **fields)
    row.full_clean()
    row.save()
    return row


aoverride = sync_to_async(override)


def series(view: Any, kind: str) -> str:
    return f"decorator:{view.__module__}.{view.__name__}:{kind}"


async def passed(site: Site, view: Any, count: int = 6, **options: Any) -> int:
    return (await site.statuses(view, count, **options)).count(200)


# --- what an override does -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize(
    ("decorator", "kind"),
    [
        (limit_req("2/h", burst=1, nodelay=True), "req"),
        (limit_count("2/h"), "count"),
        (limit_window("2/h"), "window"),
        (limit_rate("2/h", max_wait=0), "rate"),
    ],
    ids=["req", "count", "window", "rate"],
)
async def test_an_override_changes_the_rate_of_one_key(site: Site, decorator: Any, kind: str) -> None:
    view = site.view(decorator)
    with frozen_limits():
        assert await passed(site, view, 2) == 2
        row = await aoverride("4/h", limit=series(view, kind))
        # The states are the same, so that the requests before count; the burst and the tokens left too.
        assert await passed(site, view) == (2 if kind in ("count", "window") else 0)
        assert await passed(site, view, ip="192.0.2.2") == 2
        await aoverride("4/h", key="192.0.2.3", limit=series(view, kind))
        assert await passed(site, view, ip="192.0.2.3") == (2 if kind == "req" else 4)
        await row.adelete()
        assert await passed(site, view) == 0


@pytest.mark.usefixtures("everywhere")
async def test_an_override_may_have_its_burst_or_capacity(site: Site) -> None:
    with frozen_limits():
        view = site.view(limit_req("2/h", burst=1, nodelay=True))
        row = await aoverride("2/h burst=3", limit=series(view, "req"))
        assert await passed(site, view) == 4
        await row.adelete()
        view = site.view(limit_rate("2/h", max_wait=0))
        await aoverride("2/h capacity=3", limit=series(view, "rate"))
        assert await passed(site, view) == 3


@pytest.mark.usefixtures("everywhere")
async def test_none_passes_without_a_state(site: Site) -> None:
    view = site.view(limit_count("2/h"))
    row = await aoverride("none")
    reply = await site.get(view)
    assert reply.status_code == 200
    assert "RateLimit" not in reply.headers
    assert await passed(site, view) == 6
    await row.adelete()
    assert await passed(site, view) == 2


@pytest.mark.usefixtures("everywhere")
async def test_blocked_refuses_until_its_end(site: Site) -> None:
    view = site.view(limit_count("100/h", status=420))
    with frozen_limits(1_900_000_000.0) as clock:
        end = datetime.datetime.fromtimestamp(clock.now + 90, datetime.UTC)
        row = await aoverride("blocked", ends_at=end, reason="attack")
        reply = await site.get(view)
        assert (reply.status_code, reply.headers["Retry-After"]) == (420, "90")
        assert await passed(site, view, ip="192.0.2.2") == 6
        clock.tick(90)
        assert await passed(site, view) == 6
        row.ends_at = None
        await row.asave()
        reply = await site.get(view)
        assert reply.status_code == 420
        assert "Retry-After" not in reply.headers
    await sync_to_async(stats.flush)()
    assert stats.totals()[series(view, "count")].refused == 2


async def test_an_override_begins_and_ends_on_time(site: Site) -> None:
    await sync_to_async(make_policy)(limit=1, key="ip")
    view = site.view(limit("pay"))
    with frozen_limits(1_900_000_000.0) as clock:
        at = lambda seconds: datetime.datetime.fromtimestamp(clock.now + seconds, datetime.UTC)  # noqa: E731
        await aoverride("none", starts_at=at(10), ends_at=at(20))
        assert await passed(site, view, 3) == 1
        clock.tick(10)
        assert await passed(site, view, 3) == 3
        clock.tick(10)
        assert await passed(site, view, 3) == 0


@pytest.mark.usefixtures("everywhere")
async def test_a_concurrency_limit_takes_a_number_of_slots(site: Site) -> None:
    view = site.view(limit_conn(1, key="ip"))
    (slots,) = catalog.counted_limits()[series(view, "conn")].limiters.values()
    await aoverride("100/h")  # of all limits: it leaves out the number of slots
    slots.hit(IP)
    assert await passed(site, view, 1) == 0
    await aoverride("2", limit=series(view, "conn"))
    assert await passed(site, view, 1) == 1
    assert await passed(site, view, 3) == 3  # the slots were released
    slots.with_numbers(max=2).hit(IP)
    assert await passed(site, view, 1) == 0


@pytest.mark.usefixtures("everywhere")
async def test_several_limits_of_which_some_are_overridden(site: Site) -> None:
    view = site.view(limit_req("2/h;100/h", nodelay=True, burst=10))
    one = series(view, "req")
    await aoverride("blocked", limit=f"{one}:2", key="192.0.2.9")
    assert await passed(site, view, ip="192.0.2.9") == 0
    await aoverride("none", limit=one, key="192.0.2.8")
    with frozen_limits():
        assert await passed(site, view, 20, ip="192.0.2.8") == 11
    either = site.view(limit_rate_either("1/h", "1/h"))
    assert await passed(site, either) == 1
    await aoverride("none", limit=series(either, "each"))
    assert await passed(site, either) == 6
    await aoverride("blocked", limit=series(either, "total"), kind="key", key="all")
    assert await passed(site, either) == 0


@pytest.mark.usefixtures("everywhere")
async def test_a_limit_that_refuses_nothing_is_not_made_to_refuse(site: Site) -> None:
    await aoverride("blocked")
    assert await passed(site, site.view(limit_count("1/h", dry_run=True))) == 6
    seen: list[bool] = []

    def body(request: Any) -> HttpResponse:
        seen.append(request.limits.exceeded)
        return HttpResponse(b"done")

    assert await passed(site, site.view(limit_count("100/h", block=False), body=body), 2) == 2
    assert seen == [True, True]


# --- which override applies ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("everywhere")
async def test_users_addresses_networks_and_keys(site: Site) -> None:
    user = await User.objects.acreate_user("ann")
    view = {
        key: site.view(limit_count("1/h", key=key, name=f"by {key}"))
        for key in ("ip", "user", "user|ip", "user+ip", "header:X-Api-Key", "header:X-Api-Key|ip", "arg:pk", "path")
    }

    async def applies(key: str, **options: Any) -> bool:
        """Whether all of two requests pass, because there is no limit."""
        shdicts["limits"].flush_all()
        return await passed(site, view[key], 2, user=user, **options) == 2

    await aoverride("none", kind="user", key=str(user.pk))
    assert [await applies(key) for key in ("user", "user|ip", "user+ip")] == [True, True, True]
    # The ID of a user is not confused with another text, which a client may choose.
    assert not await applies("arg:pk", kwargs={"pk": user.pk})
    assert not await applies("arg:pk", kwargs={"pk": f"user:{user.pk}"})
    assert not await applies("ip")
    await aoverride("none", kind="network", key="198.51.100.0/24")
    assert [await applies(key, ip="198.51.100.7") for key in ("ip", "user+ip", "path")] == [True, True, False]
    assert not await applies("ip", ip="198.51.101.7")
    await aoverride("none", kind="network", key="2001:db8::/32")
    assert await applies("ip", ip="2001:db8:1::7")
    assert not await applies("ip", ip="2001:db9::7")
    await aoverride("none", kind="address", key="2001:db9:5::1")
    assert await applies("ip", ip="2001:db9:5::2")  # clients are counted by /64
    secret = "s" * 100
    await aoverride("none", kind="key", key=secret)
    assert [
        await applies(key, headers={"X-Api-Key": secret}) for key in ("header:X-Api-Key", "header:X-Api-Key|ip")
    ] == [True] * 2
    assert not await applies("header:X-Api-Key", headers={"X-Api-Key": "other"})
    await aoverride("none", kind="key", key="/a")
    assert await applies("path", path="/a")


@pytest.mark.usefixtures("everywhere")
async def test_the_most_specific_override_applies(site: Site) -> None:
    shared = "decorator:shared:count"
    view, other = site.view(limit_count("1/h", name="shared")), site.view(limit_count("1/h"))
    await aoverride("blocked", kind="network", key="192.0.0.0/8")
    assert await passed(site, view) == 0
    await aoverride("2/h", kind="network", key="192.0.2.0/24")
    assert await passed(site, view, 2) == 2
    await aoverride("3/h")
    assert await passed(site, view, 1) == 1
    await aoverride("5/h", kind="network", key="192.0.2.0/24", limit=shared)
    assert await passed(site, view) == 2
    assert await passed(site, other) == 3
    await aoverride("none", kind="key", limit=shared)
    assert await passed(site, view) == 6


# --- where overrides apply -------------------------------------------------------------------------------------------


async def test_a_token_bucket_keeps_its_longest_wait(site: Site, settings: Any) -> None:
    """Also if that is a setting, which may change."""
    await sync_to_async(make_policy)(algorithm="token_bucket", limit=None, window="", rate="1/h", key="ip")
    view = site.view(limit("pay", max_delay=0))
    await aoverride("2/h", limit="pay")
    with frozen_limits():
        assert await passed(site, view) == 2
    change(settings, MAX_WAIT=4000.0)
    with frozen_limits():
        assert await passed(site, view) == 4  # waits of 1,800 and 3,600 s, which a view cuts


async def test_by_default_overrides_apply_to_policies_only(site: Site) -> None:
    await sync_to_async(make_policy)(limit=1, key="ip")
    policy, decorated = site.view(limit("pay")), site.view(limit_count("1/h"))
    await aoverride("none")
    assert await passed(site, policy) == 6
    assert await passed(site, decorated) == 1


def test_decorators_read_no_database_by_default() -> None:
    view = limit_count("100/h")(lambda request: HttpResponse(b"done"))
    with CaptureQueriesContext(connection) as queries:
        assert view(RequestFactory().get("/")).status_code == 200
    assert len(queries) == 0
    assert current.active is None
    assert not registry.is_loaded()


@pytest.mark.usefixtures("everywhere")
def test_a_function_is_overridden_too() -> None:
    @limited("1/h", key=lambda phone: phone, name="sms")
    def send(phone: str) -> None: ...

    send("1")
    with pytest.raises(Limited):
        send("1")
    override("none", kind="key", key="1", limit="function:sms")
    for _ in range(3):
        send("1")
    override("2/h", kind="key", key="2", limit="function:sms")
    send("2")
    send("2")
    with pytest.raises(Limited):
        send("2")
    override("blocked", kind="key", key="3")
    with pytest.raises(Limited, match="It does not pass later either"):
        send("3")


@pytest.mark.usefixtures("everywhere")
def test_a_banned_key_is_free_with_an_override() -> None:
    @limited("1/h", key=lambda phone: phone, name="banning", ban="1h")
    def send(phone: str) -> None: ...

    row = override("blocked", kind="key", key="1")
    with pytest.raises(Limited):
        send("1")
    row.delete()
    send("1")  # the refusal of a blocked key bans nobody
    with pytest.raises(Limited):
        send("1")
    shdicts["limits"].flush_all()
    with pytest.raises(Limited):
        send("1")  # banned
    override("none", kind="key", key="1")
    send("1")


@pytest.mark.usefixtures("everywhere")
def test_a_throttle_is_overridden_too() -> None:
    from resty_django.limits.throttling import FixedWindowThrottle

    class Uploads(FixedWindowThrottle):
        rate = "1/h"

    view = drf_view(Uploads)

    def statuses() -> list[int]:
        return [view(sync_requests.get("/", REMOTE_ADDR=IP)).status_code for _ in range(3)]

    assert statuses() == [200, 429, 429]
    row = override("2/h")
    shdicts["limits"].flush_all()
    assert statuses() == [200, 200, 429]
    row.rate = "blocked"
    row.save()
    shdicts["limits"].flush_all()
    assert statuses() == [429, 429, 429]


async def test_no_limits_lifts_a_block(site: Site) -> None:
    await sync_to_async(make_policy)(limit=1, key="ip")
    view = site.view(limit("pay"))
    await aoverride("blocked")
    with no_limits():
        assert await passed(site, view) == 6
    assert await passed(site, view) == 0


# --- changes ---------------------------------------------------------------------------------------------------------


@pytest.mark.db
def test_a_change_takes_effect_with_its_commit() -> None:
    make_policy(limit=1, key="ip")
    view = limit("pay")(lambda request: HttpResponse(b"done"))
    ask = lambda: view(sync_requests.get("/", REMOTE_ADDR=IP)).status_code  # noqa: E731
    assert [ask(), ask()] == [200, 429]
    with transaction.atomic():
        row = override("none")
        assert ask() == 429
    assert ask() == 200
    with transaction.atomic():
        row.delete()
        transaction.set_rollback(True)
    assert ask() == 200
    LimitOverride.objects.get().delete()
    assert ask() == 429
    assert current.active is None


@pytest.mark.db
def test_a_request_without_an_override_is_decided_as_if_there_were_none() -> None:
    make_policy(limit=9, key="ip")
    override("1/h", limit="pay")
    override("none", limit="other")
    enforcer = enforcer_for((policy_of(),))

    def decided(address: str) -> Any:
        return enforcer.decide(sync_requests.get("/", REMOTE_ADDR=address), {})

    for _ in range(2):
        assert isinstance(decided("198.51.100.1"), LimitResult), "its only limit decides"
    assert isinstance(decided(IP), LimitCheck), "its override decides"
    assert current.active is not None
    assert current.active.applies("pay", IP, ("ip",))
    assert not current.active.applies("pay", "198.51.100.1", ("ip",))
    assert not current.active.applies("unnamed", IP, ("ip",))
    override("none", limit="")
    assert current.active.applies("unnamed", IP, ("ip",))
    assert not current.active.applies("decorator:shop.views.pay:req", IP, ("ip",)), "the setting OVERRIDES"
    assert UNREAD.applies("unnamed", IP, ("ip",))


@pytest.mark.db
def test_a_decision_makes_no_query() -> None:
    make_policy(limit=1, key="ip")
    override("none")
    view = limit("pay")(lambda request: HttpResponse(b"done"))
    ask = lambda: view(sync_requests.get("/", REMOTE_ADDR=IP)).status_code  # noqa: E731
    assert ask() == 200
    with CaptureQueriesContext(connection) as queries:
        assert [ask(), ask()] == [200, 200]
    assert len(queries) == 0


@pytest.fixture
def broken() -> Iterator[Callable[[bool], None]]:
    with breakable("limitoverride") as change:
        yield change


@pytest.mark.db
def test_while_the_database_is_down_overrides_stay(broken: Callable[[bool], None]) -> None:
    make_policy(limit=1, key="ip")
    override("blocked")
    registry.refresh_policies()
    broken(True)
    assert not registry.refresh_policies()
    view = limit("pay")(lambda request: HttpResponse(b"done"))
    assert view(sync_requests.get("/", REMOTE_ADDR=IP)).status_code == 429
    registry.forget_policies()
    assert view(sync_requests.get("/", REMOTE_ADDR=IP)).status_code == 200  # a process that starts now has none
    broken(False)
    assert registry.refresh_policies()
    assert view(sync_requests.get("/", REMOTE_ADDR=IP)).status_code == 429


def test_a_row_that_is_not_valid_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = override("none"), override("none", kind="network", key="198.51.100.0/24")
    LimitOverride.objects.filter(pk=bad.pk).update(key="198.51.100.0/99")
    registry.refresh_policies()
    registry.refresh_policies()
    assert [record.message for record in caplog.records if "override" in record.message] == [
        f"The override with the ID {bad.pk} is not valid and does not apply: "
        "'198.51.100.0/99' does not appear to be an IPv4 or IPv6 network"
    ]
    override_found = current.find("pay", IP, ("ip",))
    assert override_found is not None
    assert override_found.pk == good.pk


def test_ended_overrides_are_not_read() -> None:
    override("none", ends_at=timezone.now() - datetime.timedelta(1))
    registry.refresh_policies()
    assert current.active is None


@pytest.mark.usefixtures("everywhere")
def test_a_limit_that_is_not_counted_has_no_overrides() -> None:
    override("blocked")
    registry.forget_policies()
    enforcer = Enforcer([RequestLimit("x", FixedWindow(1, 60, prefix="x:"), LimitOptions(key=keys.make("ip")))])
    check = enforcer.check(sync_requests.get("/", REMOTE_ADDR=IP), {})
    assert check is not None
    assert check.refused is None
    assert current.active is not UNREAD  # the next decision does not look for them again


def test_a_forked_child_keeps_the_overrides_until_it_has_read() -> None:
    override("none")
    registry.refresh_policies()
    before = current.active
    current.after_fork()
    assert current.active is UNREAD
    assert current.get() is before


EARLY_USE = """
import json, os, sys

import django
from django.apps import AppConfig
from django.conf import settings


class Early(AppConfig):
    path = "/"

    def ready(self):
        from resty_django.limits import limited

        call = limited("1/h", key="7", name="early")(lambda: None)
        call()
        call()


settings.RESTY_DJANGO = json.loads(os.environ["RESTY_WORKER_SITE"])
settings.INSTALLED_APPS = [Early("early", sys.modules["__main__"]), *settings.INSTALLED_APPS]
django.setup()
"""


@pytest.mark.usefixtures("everywhere")
def test_overrides_apply_to_a_limit_that_is_used_before_the_app_is_ready(settings: Any) -> None:
    override("none", "7", "key")
    env = {
        "RESTY_DB_NAME": str(connection.settings_dict["NAME"]),
        "RESTY_WORKER_SITE": json.dumps(settings.RESTY_DJANGO),
    }
    done = subprocess.run(
        [sys.executable, "-c", EARLY_USE], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.db
def test_a_change_takes_effect_in_other_processes_within_a_tenth_of_a_second(worker: Callable[..., Worker]) -> None:
    make_policy(limit=1, key="ip")
    watching = [worker("override", name="pay", key=IP) for _ in range(2)]
    for each in watching:
        each.wait_for(lambda line: line[:2] == ["override", None])
    slowest = []
    for number in range(1, 6):
        if number == 1:
            row = override("1/h")
        else:
            row.rate = f"{number}/h"
            row.save()
        saved = time.time()
        lines = [each.wait_for(lambda line, rate=f"{number}/h": line[:2] == ["override", rate]) for each in watching]
        slowest.append(max(line[2] for line in lines) - saved)
    assert min(slowest) < WITHIN


# --- bad input -------------------------------------------------------------------------------------------------------


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "person"}, "kind", "is not a valid choice"),
    ({"key": " "}, "key", "The key is missing"),
    ({"key": "x" * 201}, "key", "at most 200"),
    ({"key": "192.0.2.300"}, "key", "is not an IP address such as 192.0.2.7"),
    ({"kind": "network", "key": "192.0.2.0/33"}, "key", "Enter a network such as 192.0.2.0/24"),
    ({"kind": "network", "key": "2001:db8::/96"}, "key", "Enter /64 or a larger network"),
    ({"rate": "fast"}, "rate", "An override of all limits needs a rate such as 60/m, none or blocked."),
    ({"rate": "1.5/s"}, "rate", "is not a whole number of requests"),
    ({"rate": "60/m burst=3"}, "rate", "is not a unit of time"),
    ({"rate": "20"}, "rate", "is not a rate such as"),
    ({"rate": "1.5/s", "limit": "pay"}, "rate", "is not a whole number of requests"),
    ({"rate": "6/s burst=3", "limit": "pay"}, "rate", "this limit has no burst=. Remove it."),
    ({"rate": "6/s", "limit": "slots"}, "rate", "Enter a whole number from 1, none or blocked."),
    ({"rate": "0", "limit": "slots"}, "rate", "Enter a whole number from 1, none or blocked."),
    ({"rate": "6/s capacity=3", "limit": "leaky"}, "rate", "this limit has no capacity=. Use burst=."),
    ({"rate": "9999999999/s", "limit": "leaky"}, "rate", "is out of range"),
    ({"rate": "1/99999d", "limit": "unknown"}, "rate", "is out of range"),
    ({"limit": "ban:search"}, "limit", "Of all bans, only the login guard has overrides."),
    ({"limit": "decorator:shop.views.search:req"}, "limit", 'set RESTY_DJANGO["LIMITS"]["OVERRIDES"] to "all"'),
    (
        {"starts_at": timezone.now(), "ends_at": timezone.now() - datetime.timedelta(1)},
        "ends_at",
        "The override ends before it begins.",
    ),
]


def test_bad_input_is_refused_with_what_to_change() -> None:
    make_policy(limit=1)
    make_policy("leaky", algorithm="leaky_bucket", rate="1/s")
    make_policy("slots", algorithm="concurrency", limit=2)
    for fields, name, message in WRONG:
        with pytest.raises(ValidationError) as caught:
            override(**{"rate": "60/m", **fields})
        assert message in " ".join(caught.value.message_dict[name]), fields


@pytest.mark.db
def test_a_key_has_one_override_for_a_limit() -> None:
    override("none")
    override("none", limit="pay")
    with pytest.raises(ValidationError, match="already an override"):
        override("blocked")


def test_a_limit_keeps_its_numbers_if_it_cannot_have_the_rate(caplog: pytest.LogCaptureFixture) -> None:
    row = override("60/m", limit="pay")  # the policy does not exist yet
    LimitOverride.objects.filter(pk=row.pk).update(rate="1.5/s")
    make_policy(limit=2, key="ip")
    view = limit("pay")(lambda request: HttpResponse(b"done"))
    assert [view(sync_requests.get("/", REMOTE_ADDR=IP)).status_code for _ in range(3)] == [200, 200, 429]
    assert "The override '1.5/s' does not apply to pay" in caplog.text


def test_a_limiter_with_other_numbers_shares_its_states() -> None:
    limiter = FixedWindow(2, 3600, prefix="x:")
    more = limiter.with_numbers(limit=3)
    assert [bool(each.hit("k")) for each in (limiter, more, limiter, more)] == [True, True, False, False]
    assert (limiter.limit, more.limit) == (2, 3)
