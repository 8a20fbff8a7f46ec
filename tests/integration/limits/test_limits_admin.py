"""The admin of policies: list, form, figures, trying, resetting and modes; who may do what."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from resty_django.limits import Decision
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.policies.policy_set import limiters_of
from resty_django.limits.statistics import reporter
from resty_django.limits.stores import circuit_breaker
from tests.integration.limits.policy_tools import HOSTILE, POLICIES, make_policy, person, policy_of
from tests.staff import logged, plain, text_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.db,
    pytest.mark.usefixtures("limits_site"),
]

REFUSED = Decision(False)


def data(**fields: Any) -> dict[str, Any]:
    """Return the fields that a browser sends for a policy's form."""
    empty = (
        "rate",
        "burst",
        "limit",
        "window",
        "interval",
        "capacity",
        "quantum",
        "max_wait",
        "default_delay",
        "lease",
    )
    return {
        **dict.fromkeys(empty, ""),
        **dict.fromkeys(("description", "path", "route", "view", "methods", "on_error", "status"), ""),
        "name": "pay",
        "algorithm": "leaky_bucket",
        "rate": "200/s",
        "burst": "100",
        "key": "ip",
        "cost": "1",
        "mode": "enforce",
        "order": "0",
        **fields,
    }


def page(row: LimitPolicy, name: str) -> str:
    return f"{POLICIES}{row.pk}/{name}/"


# --- list ---------------------------------------------------------------------------------------------------------


def test_the_list_shows_the_limit_in_words_and_its_last_hour(admin_client: Client) -> None:
    make_policy(algorithm="leaky_bucket", limit=None, window="", rate="200/s", burst=100, path="/pay/*", methods="POST")
    make_policy("other")
    for number in range(30):
        reporter.stats.record("pay", "k", Decision(number % 3 > 0, delay=0.5 * (number % 3 == 2)))
    html = text_of(admin_client, f"{POLICIES}?q=policy")
    assert "200 requests/s, up to 100 wait, then refused" in html
    assert "<code>POST</code> <code>/pay/*</code>" in html
    assert "where code names it" in html
    assert "10 passed, 10 delayed, 10 refused" in html
    assert html.count('class="resty-bars"') == 2
    assert '<rect class="resty-refused"' in html
    assert "by all" in plain(html)


def test_the_list_asks_as_much_for_many_policies_as_for_few(admin_client: Client) -> None:
    text_of(admin_client, POLICIES)
    make_policy("a")
    with CaptureQueriesContext(connection) as few:
        text_of(admin_client, POLICIES)
    for number in range(20):
        make_policy(f"b{number}")
    with CaptureQueriesContext(connection) as many:
        text_of(admin_client, POLICIES)
    assert len(many) == len(few)


def test_the_list_shows_what_code_declares_and_fills_the_form_with_it(admin_client: Client) -> None:
    registry.declare_policy("pay", "leaky_bucket", rate="7/s", burst=3, path="/pay/*")
    registry.declare_policy("taken", "fixed_window", limit=1, window="1s")
    make_policy("taken")
    html = text_of(admin_client, POLICIES)
    assert "7 requests/s, up to 3 wait, then refused" in html
    assert "Policy, enforce in code Replace" in plain(html)
    (link,) = re.findall(r'href="([^"]+add/\?[^"]+)"', html)
    form = text_of(admin_client, link.replace("&amp;", "&"))
    for value in ("7/s", "pay", "/pay/*"):
        assert f'value="{value}"' in form


def test_the_pages_say_when_a_store_is_down(admin_client: Client, settings: Any) -> None:
    row = make_policy()
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": {"limits": {"PATH": "/proc/nowhere"}}}
    policy = policy_of()
    assert policy.limiter.hit("k").failed
    assert circuit_breaker.current_outages()
    for url in (POLICIES, page(row, "figures")):
        text = plain(text_of(admin_client, url))
        assert "The store “limits” has not answered this process since" in text
        assert "1 decisions were made without it" in text
    assert "The statistics cannot be read" in text


def test_a_policy_broken_in_the_database_is_shown_as_that(admin_client: Client) -> None:
    row = make_policy()
    assert registry.get_policy("pay") is not None
    LimitPolicy.objects.update(window="soon")
    registry.refresh_policies()
    assert "Not valid." in text_of(admin_client, POLICIES)
    assert "the previous version stays in force" in text_of(admin_client, page(row, "change"))
    assert "cannot be tried" in text_of(admin_client, page(row, "try"))
    assert "Not done: The policy is not valid" in plain(
        admin_client.post(page(row, "reset-key"), {"key": "k"}, follow=True).content.decode()
    )


# --- form ---------------------------------------------------------------------------------------------------------


def test_a_policy_is_added_changed_and_deleted_and_acts_at_once(admin_client: Client) -> None:
    assert registry.get_policy("pay") is None
    reply = admin_client.post(f"{POLICIES}add/", data())
    assert reply.status_code == 302, reply.context["errors"]
    policy = policy_of()
    assert policy.describe() == "200 requests/s, up to 100 wait, then refused"
    row = LimitPolicy.objects.get()
    assert "200 requests/s, up to 100 wait, then refused" in text_of(admin_client, page(row, "change"))
    admin_client.post(page(row, "change"), data(rate="3/s"))
    policy = policy_of()
    assert policy.spec.rate == "3/s"
    admin_client.post(page(row, "delete"), {"post": "yes"})
    assert registry.get_policy("pay") is None
    assert logged() == ["Added.", "Changed Rate: 200/s → 3/s.", ""]


def test_a_route_a_rate_and_a_key_are_enough(admin_client: Client) -> None:
    form = admin_client.get(f"{POLICIES}add/").context["adminform"]
    first, *folded = form
    assert first.fields == ["route", "rate", "key", "name"]
    assert all(section.is_collapsible for section in folded)
    # A browser also sends the initial values of the other fields.
    sent = {name: "" if value is None else value for name, value in form.form.initial.items()}
    sent |= {
        field.name: "" if field.initial is None else field.initial for field in form.form if field.name not in sent
    }
    url = f"{POLICIES}add/"
    reply = admin_client.post(url, {**sent, "rate": "30/min"})
    assert list(reply.context["adminform"].form.errors) == ["name"]
    reply = admin_client.post(url, {**sent, "route": "shop:pay", "rate": "30/min", "key": "user|ip"})
    assert reply.status_code == 302, reply.context["errors"]
    policy = policy_of("shop-pay")
    assert (policy.spec.algorithm, policy.spec.key, policy.mode) == ("sliding_window", "user|ip", "enforce")
    # Sections with other values than the defaults are open.
    row = make_policy("open", mode="shadow")
    sections = {
        str(section.name): section.is_collapsible
        for section in admin_client.get(page(row, "change")).context["adminform"]
    }
    assert [name for name, is_folded in sections.items() if not is_folded] == [
        "None",
        "Algorithm and numbers",
        "Mode and description",
        "Written",
    ]


def test_numbers_of_other_algorithms_are_dropped(admin_client: Client) -> None:
    row = make_policy()
    reply = admin_client.post(
        page(row, "change"), data(limit="three", window="junk", capacity="9", methods="get, post")
    )
    assert reply.status_code == 302, reply.context["errors"]
    # Also what the form drops is in the history.
    changes = ("Rate: empty → 200/s", "Burst: empty → 100.0", "Limit: 3 → empty", "Window: 1h → empty")
    assert all(change in logged()[0] for change in changes), logged()
    row.refresh_from_db()
    assert (row.rate, row.burst, row.limit, row.window, row.capacity) == ("200/s", 100, None, "", None)
    assert row.methods == "GET POST"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate": ""}, "Leaky bucket requires this field."),
        ({"burst": "many"}, "Enter a number."),
        ({"burst": "nan"}, "Enter a number."),
        ({"name": "a b"}, "A name must begin with a letter or digit"),
        ({"status": "200"}, "from 400 to 599"),
        ({"algorithm": "magic"}, "Select a valid choice"),
        ({"key": "<script>"}, "&#x27;&lt;script&gt;&#x27; is not a key"),
    ],
)
def test_mistakes_are_reported_at_their_field(admin_client: Client, fields: dict[str, Any], message: str) -> None:
    reply = admin_client.post(f"{POLICIES}add/", data(**fields))
    html = reply.content.decode()
    assert reply.status_code == 200
    assert message in html
    assert list(reply.context["adminform"].form.errors) == list(fields)
    assert not LimitPolicy.objects.exists()


def test_a_name_that_is_taken_is_refused(admin_client: Client) -> None:
    make_policy()
    assert "already exists" in admin_client.post(f"{POLICIES}add/", data()).content.decode()


# --- figures ------------------------------------------------------------------------------------------------------


def test_the_page_of_figures_shows_time_and_keys(admin_client: Client) -> None:
    row = make_policy()
    for _ in range(1234):
        reporter.stats.record("pay", "192.0.2.7", REFUSED)
    reporter.stats.record("pay", "k", REFUSED, True)
    html = text_of(admin_client, page(row, "figures"))
    text = plain(html)
    assert "Refused 1234" in text.replace(",", "")
    assert "Would have been refused 1 " in text
    assert "192.0.2.7 1,234 Reset" in text
    assert 'data-resty-parts="#content-main"' in html  # updates itself


def test_hostile_keys_are_escaped(admin_client: Client) -> None:
    row = make_policy()
    limiters_of(row.spec())[0].hit(HOSTILE)
    reporter.stats.record("pay", HOSTILE, REFUSED)
    html = text_of(admin_client, page(row, "figures"))
    escaped = "&lt;b&gt;&quot;it&#x27;s\\&amp;{{x}}%s&lt;/b&gt;é\\u202e\\x00"
    assert f'<code class="resty-id">{escaped}</code>' in html
    assert "<b>" not in html
    (link,) = re.findall(r'href="([^"]+\?k=[^"]+)"', html)
    assert escaped in text_of(admin_client, link)
    reply = admin_client.post(link, follow=True).content.decode()
    assert f'Reset the key <code class="resty-id">{escaped}</code>.' in reply
    assert "{{x}}" in logged()[-1]


# --- try it -------------------------------------------------------------------------------------------------------


def test_trying_shows_decisions_and_stores_nothing(admin_client: Client) -> None:
    row = make_policy(algorithm="leaky_bucket", limit=None, window="", rate="2/s", burst=3)
    assert "Retry after" not in text_of(admin_client, page(row, "try"))
    html = text_of(admin_client, page(row, "try") + "?key=%3Cb%3E&arrivals=9&interval=100ms")
    assert "1 passed, 4 delayed, 4 refused" in html
    assert [cell for cell in re.findall(r'<td class="resty-number">([\d.]+)</td>', html) if cell == "1.200"]
    assert "&lt;b&gt;" in html
    policy = policy_of()
    assert policy.limiter.hit("<b>").state == 0
    assert reporter.stats.totals() == {}
    assert logged() == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("arrivals=0&interval=1s", "greater than or equal to 1"),
        ("arrivals=201&interval=1s", "less than or equal to 200"),
        ("arrivals=5&interval=soon", "is not a duration"),
        ("arrivals=5&interval=9w", "at most 86,400 seconds"),
        ("arrivals=5&interval=", "This field is required."),
    ],
)
def test_a_trial_has_its_bounds(admin_client: Client, query: str, message: str) -> None:
    html = text_of(admin_client, page(make_policy(), "try") + f"?{query}")
    assert message in html
    assert "Retry after" not in html


def test_slots_are_tried_with_the_time_that_requests_last(admin_client: Client) -> None:
    row = make_policy(algorithm="concurrency", limit=2, window="")
    html = text_of(admin_client, page(row, "try") + "?arrivals=6&interval=100ms&lasts=250ms")
    assert "4 passed, 0 delayed, 2 refused" in html
    assert "In progress" in html


# --- reset --------------------------------------------------------------------------------------------------------


def test_a_key_is_reset(admin_client: Client) -> None:
    row = make_policy(limit=1)
    policy = policy_of()
    assert [bool(policy.limiter.hit("k")) for _ in range(2)] == [True, False]
    assert "Reset" in text_of(admin_client, page(row, "reset-key"))
    assert not policy.limiter.peek("k")
    reply = admin_client.post(page(row, "reset-key"), {"key": "k"}, follow=True)
    assert "Reset the key" in reply.content.decode()
    assert policy.limiter.hit("k")
    assert logged() == ["Reset the key “k”."]
    reply = admin_client.post(page(row, "reset-key"), {"key": "unknown"}, follow=True)
    assert "Not done: The key “unknown” has no stored state" in reply.content.decode()
    assert len(logged()) == 1


# --- modes --------------------------------------------------------------------------------------------------------


def selected(*rows: LimitPolicy, **fields: str) -> dict[str, Any]:
    return {"_selected_action": [str(row.pk) for row in rows], **fields}


def test_modes_change_after_a_page_that_asks(admin_client: Client) -> None:
    rows = make_policy("a"), make_policy("b"), make_policy("c", mode="shadow")
    assert registry.get_policy("a") is not None
    reply = admin_client.post(POLICIES, selected(*rows, action="shadow", index="0"))
    html = reply.content.decode()
    assert reply.status_code == 200
    assert "Decisions are made and counted" in html
    assert re.findall(r'<th scope="row">(\w)</th>', html) == ["a", "b"]
    assert LimitPolicy.objects.filter(mode="shadow").count() == 1
    admin_client.post(POLICIES, selected(rows[0], rows[1], action="shadow", confirmed="yes"))
    assert {row.mode for row in LimitPolicy.objects.all()} == {"shadow"}
    assert logged() == ["Changed Mode: enforce → shadow."] * 2
    assert {policy.mode for policy in registry.all_policies().values()} == {"shadow"}
    admin_client.post(POLICIES, selected(*rows, action="off", confirmed="yes"))
    admin_client.post(POLICIES, selected(rows[0], action="enforce", confirmed="yes"))
    assert [row.mode for row in LimitPolicy.objects.order_by("name")] == ["enforce", "off", "off"]


# --- who may do what ----------------------------------------------------------------------------------------------


def test_modes_take_the_permission_to_change() -> None:
    row = make_policy()
    person("view_limitpolicy").post(POLICIES, selected(row, action="off", confirmed="yes"))
    assert LimitPolicy.objects.get().mode == "enforce"
    person("view_limitpolicy", "change_limitpolicy").post(POLICIES, selected(row, action="off", confirmed="yes"))
    assert LimitPolicy.objects.get().mode == "off"


@pytest.mark.parametrize("name", ["figures", "try", "reset-key"])
def test_the_page_of_a_deleted_policy_redirects_to_the_list(admin_client: Client, name: str) -> None:
    assert admin_client.get(f"{POLICIES}12345/{name}/").status_code == 302
