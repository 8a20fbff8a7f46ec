"""The admin of counters: list, statistics, and the actions on one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import resolve
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from resty_django.admin.formatting import duration
from resty_django.ids.admin.statistics import CounterStatistics
from resty_django.ids.forecast import Outlook
from resty_django.ids.health import probe
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.overview import panel, runs_out
from tests.integration.ids.admin_tools import COUNTERS, RULES, make_counter, make_rule, person
from tests.staff import logged

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]

DAY_SECONDS = 86_400
ACTIONS = {
    "issue": "issue_id",
    "raise": "raise_idcounter",
    "lower": "lower_idcounter",
    "confirm-step": "confirm_step",
}
NUMBERS = {"to": "500", "confirmation": "order/shop 500", "salt": ""}


def page(counter: IdCounter, name: str = "change") -> str:
    return f"{COUNTERS}{counter.pk}/{name}/"


# --- list and statistics ----------------------------------------------------------------------------------------------


def test_list_shows_position_head_room_and_forecast(admin_client: Client) -> None:
    rule = make_rule(max_counter=9999, reset_seconds=0, source="{counter:04d}")
    counter = make_counter(rule, bound=2500)
    IdCounter.objects.update(window_began=timezone.now() - timedelta(days=5))
    html = admin_client.get(COUNTERS).content.decode()
    assert "2,499" in html
    assert '<meter min="0" max="1000" low="100" high="250" optimum="1000" value="750">75 %</meter>' in html
    assert "7,500 left" in html
    assert ">in 15 d<" in html
    assert "never resets" in html
    assert admin_client.get(page(counter)).status_code == 200


def test_list_filters_and_sorts(admin_client: Client) -> None:
    rule = make_rule(max_counter=999, timezone="Pacific/Kiritimati")
    zoned = make_rule("other", max_counter=999, timezone="Pacific/Pago_Pago")
    make_counter(rule, "fresh", bound=10)
    make_counter(rule, "near", bound=950)
    make_counter(zoned, "full", bound=1000)
    old = make_counter(zoned, "yesterday", bound=1000)
    IdCounter.objects.filter(pk=old.pk).update(
        cycle_start=old.cycle_start - DAY_SECONDS, cycle_end=old.cycle_end - DAY_SECONDS, shown=old.shown - DAY_SECONDS
    )
    ahead = make_counter(zoned, "ahead", bound=5)
    IdCounter.objects.filter(pk=ahead.pk).update(shown=ahead.shown + 7200)
    make_counter(rule, "stepped", bound=5, step=3, node_offset=2)

    def found(query: str) -> list[str]:
        return [row.app_name for row in admin_client.get(f"{COUNTERS}?{query}").context["cl"].result_list]

    assert set(found("state=near")) == {"near", "full"}
    assert found("state=used_up") == ["full"]
    assert found("state=ahead") == ["ahead"]
    assert found("state=step") == ["stepped"]
    assert found("q=fre") == ["fresh"]
    assert set(found(f"rule__id__exact={rule.pk}")) == {"fresh", "near", "stepped"}
    for column in range(7):
        assert len(found(f"o={column}")) == len(found(f"o=-{column}")) == 6
    assert found("o=0") == sorted(found("o=0"))
    assert found("o=-0") == sorted(found("o=0"), reverse=True)


def test_the_counter_that_runs_out_first_is_in_the_first_row(admin_client: Client) -> None:
    endless = make_rule(max_counter=9999, reset_seconds=0)
    daily = make_rule("daily", max_counter=9999, timezone="Pacific/Kiritimati")

    def counter(rule: IdRule, name: str, bound: int, *, hours: float, **fields: Any) -> IdCounter:
        """A counter whose numbers were issued in these hours."""
        began = timezone.now() - timedelta(hours=hours, seconds=1)
        return make_counter(rule, name, bound=bound, window_began=began, **fields)

    counter(endless, "fast", 2000, hours=1)  # 4 hours left
    counter(endless, "slow", 9000, hours=900)  # 100 hours left
    counter(endless, "new", 9000, hours=0)  # too early for a forecast
    counter(endless, "unused", 100, hours=900, window_issued=0)
    counter(endless, "full", 10_000, hours=900)
    counter(daily, "enough for today", 100, hours=1)
    ended = counter(daily, "ended", 9999, hours=20)
    IdCounter.objects.filter(pk=ended.pk).update(
        cycle_start=ended.cycle_start - DAY_SECONDS,
        cycle_end=ended.cycle_end - DAY_SECONDS,
        shown=ended.shown - DAY_SECONDS,
    )

    def names(query: str = "") -> list[str]:
        return [row.app_name for row in admin_client.get(f"{COUNTERS}?{query}").context["cl"].result_list]

    order = ["full", "fast", "slow", "enough for today", "new", "unused", "ended"]
    assert names() == order
    assert [name for name in names("o=4") if name in order[:4]] == order[:4]
    assert names("o=-4")[0] == names("o=4")[-1] == "ended"


HOUR = 3600.0


@pytest.mark.parametrize(
    ("fields", "outlook", "wait"),
    [
        ({}, Outlook.RUNS_OUT, 9 * HOUR),  # 1000 of 10 000 in an hour
        ({"hours": 2}, Outlook.RUNS_OUT, 18 * HOUR),  # without traffic, the pace falls
        ({"issued": 100, "step": 10, "bound": 1001}, Outlook.RUNS_OUT, 9 * HOUR),  # a node counts its own numbers
        ({"issued": 100, "bound": 5000}, Outlook.RUNS_OUT, 50 * HOUR),  # most of them are only reserved
        ({"ends_in": 8.9 * HOUR}, Outlook.LASTS, None),
        ({"ends_in": 9.1 * HOUR}, Outlook.RUNS_OUT, 9 * HOUR),
        ({"issued": 1, "maximum": 2**62}, Outlook.LASTS, None),
        ({"hours": 0.9}, Outlook.UNKNOWN, None),
        ({"issued": 0}, Outlook.UNKNOWN, None),
        ({"window_began": None}, Outlook.UNKNOWN, None),
        ({"bound": 9999}, Outlook.RUNS_OUT, HOUR / 1000),
        ({"bound": 10_000}, Outlook.USED_UP, 0.0),
        ({"bound": 10_000, "ends_in": -1}, Outlook.TURNED, None),
    ],
)
@override_settings(RESTY_DJANGO={"IDS": {"RUNS_OUT_WARNING": "12h"}})
def test_list_tile_check_and_metric_have_the_same_forecast(
    admin_client: Client, fields: dict[str, Any], outlook: Outlook, wait: float | None
) -> None:
    values = {"hours": 1, "issued": 1000, "bound": 1000, "maximum": 9999, "ends_in": None, **fields}
    began = timezone.now() - timedelta(hours=values.pop("hours"), seconds=1)
    rule = make_rule(min_counter=0, max_counter=values.pop("maximum"), reset_seconds=0)
    ends_in, issued = values.pop("ends_in"), values.pop("issued")
    counter = make_counter(rule, **{"window_began": began, "window_issued": issued, **values})
    if ends_in is not None:
        IdCounter.objects.update(cycle_end=counter.shown + ends_in, shown=counter.shown - 10)
    cells = admin_client.get(COUNTERS).context["cl"].result_list
    forecast = CounterStatistics.of(cells[0]).forecast
    assert (forecast.outlook, forecast.wait) == (outlook, wait and pytest.approx(wait, rel=0.01))
    facts_row = next(row for row in panel().rows if row.subject == "order")
    figure = {figure.name: figure for figure in facts_row.figures}["runs_out"]
    assert figure.value == (wait if wait is None else pytest.approx(wait, rel=0.01))
    assert dict(runs_out()) == ({} if wait is None else {"order": pytest.approx(wait, rel=0.01)})
    is_soon = wait is not None and wait < 12 * HOUR
    assert (figure.level == "warning") is is_soon
    warnings = [finding.message for finding in probe() if "run out in" in finding.message]
    assert len(warnings) == (is_soon and wait != 0)  # of a used-up counter it says that
    shown = admin_client.get(COUNTERS).content.decode()
    if wait:
        assert f">in {duration(vars(cells[0])['runs_out'])}<" in shown
        assert warnings == [] or f" {wait / HOUR:,.1f} h" in warnings[0]


NUMBER = st.sampled_from([0, 1, 2**31, 2**53 + 1, 2**62 - 1, 2**62, 2**63 - 1]) | st.integers(0, 2**63 - 1)
WALL = st.sampled_from([-(2**63), -(2**62), -(10**11), 253_402_300_800]) | NUMBER


@settings(
    deadline=None,
    max_examples=25,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rule=st.fixed_dictionaries(
        {
            "max_counter": st.integers(1, 2**62),
            "segment_size": st.integers(1, 2**31 - 1),
            "timezone": st.sampled_from(["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"]),
        }
    ),
    reset=st.fixed_dictionaries({"reset_seconds": NUMBER}) | st.sampled_from([{"reset_calendar": "year"}, {}]),
    counter=st.fixed_dictionaries(
        {
            "bound": NUMBER,
            "cycle_first": WALL,
            "window_issued": NUMBER,
            "window_began": st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
            "step": st.integers(1, 2**31 - 1),
        }
    ),
    cycle=st.lists(WALL, min_size=3, max_size=3).map(sorted).filter(lambda walls: walls[0] < walls[2]),
)
def test_extreme_counters_have_pages(
    admin_client: Client, rule: dict[str, Any], reset: dict[str, Any], counter: dict[str, Any], cycle: list[int]
) -> None:
    IdRule.objects.all().delete()
    source = IdRule.objects.create(name="extreme", source="{counter}", **rule, **reset)
    start, shown, end = cycle
    row = IdCounter.objects.create(
        rule=source, cycle_began=timezone.now(), cycle_start=start, shown=shown, cycle_end=end, **counter
    )
    lists = (COUNTERS, f"{COUNTERS}?state=near", f"{COUNTERS}?export=csv", RULES, f"{RULES}{source.pk}/change/")
    counter_pages = (page(row), page(row, "raise"), page(row, "lower"), page(row, "confirm-step"))
    for url in (*lists, *counter_pages, "/admin/resty_django/overview/", "/metrics"):
        response = admin_client.get(url, follow=True)
        assert response.status_code == 200, url
        b"".join(response) if response.streaming else response.content
    assert list(probe())


def test_a_slow_counter_without_a_reset_lasts_more_than_100_years(admin_client: Client) -> None:
    make_counter(make_rule("invoice", max_counter=10**9, reset_seconds=0), bound=5)
    IdCounter.objects.update(window_began=timezone.now() - timedelta(days=30))
    assert "in more than 100 years" in admin_client.get(COUNTERS).content.decode()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"bound": 1000}, "All numbers of this cycle are reserved."),
        ({"step": 2, "node_offset": 1}, "Confirm the step"),
        ({"bound": 0}, "OK"),
    ],
)
def test_the_page_of_a_counter_shows_its_state(admin_client: Client, fields: dict[str, Any], sentence: str) -> None:
    html = admin_client.get(page(make_counter(make_rule(max_counter=999), **fields))).content.decode()
    assert sentence in html


def test_facts_of_a_counter_ahead_of_the_clock_or_of_yesterday(admin_client: Client) -> None:
    counter = make_counter(make_rule(), bound=70)
    IdCounter.objects.update(shown=counter.shown + 5000)
    assert "ahead of this clock" in admin_client.get(page(counter)).content.decode()
    IdCounter.objects.update(
        cycle_start=counter.cycle_start - DAY_SECONDS,
        cycle_end=counter.cycle_end - DAY_SECONDS,
        shown=counter.shown - DAY_SECONDS,
    )
    html = admin_client.get(page(counter)).content.decode()
    assert "restarts" in html
    assert "000000</code>" in html


def test_facts_survive_a_rule_that_does_not_compile(admin_client: Client) -> None:
    counter = make_counter(make_rule())
    counter.rule.timezone, counter.rule.source = "Mars/Olympus", "nothing"
    counter.rule.save()
    for url in (COUNTERS, RULES, page(counter), page(counter, "raise"), page(counter, "lower")):
        assert admin_client.get(url, follow=True).status_code == 200, url
    reply = admin_client.post(page(counter, "raise"), NUMBERS)
    assert "not a time zone" in reply.content.decode()
    assert IdCounter.objects.get().bound == 100


def test_counters_cannot_be_added_changed_or_deleted_by_a_form(admin_client: Client) -> None:
    counter = make_counter(make_rule())
    assert admin_client.get(f"{COUNTERS}add/").status_code == 403
    assert admin_client.post(page(counter), {"bound": 0}).status_code == 403
    assert admin_client.post(page(counter, "delete"), {"post": "yes"}).status_code == 403
    assert IdCounter.objects.get().bound == 100


# --- actions --------------------------------------------------------------------------------------------------------


def test_issue_takes_the_next_number(admin_client: Client) -> None:
    counter = make_counter(make_rule(), bound=100)
    reply = admin_client.post(page(counter, "issue"), {"salt": "", "app": "elsewhere"}, follow=True)
    assert "000100</code>" in reply.content.decode()
    assert "for the application name “shop”" in logged()[0]
    assert IdCounter.objects.get().bound == 110


def test_issue_is_for_this_site_s_node(admin_client: Client) -> None:
    counter = make_counter(make_rule(), step=2, node_offset=1)
    with override_settings(RESTY_DJANGO={"IDS": {"STEP": 2}}):
        assert "issue/" not in admin_client.get(page(counter)).content.decode()
        assert admin_client.post(page(counter, "issue"), {"salt": ""}).status_code == 403
    assert IdCounter.objects.get().bound == 100


def test_issue_works_on_a_site_with_a_transaction_around_each_request() -> None:
    """Its number is reserved on another connection, which must not wait for the request's own transaction."""
    for url in (f"{COUNTERS}1/issue/", f"{RULES}1/issue/"):
        assert resolve(url).func._non_atomic_requests == {"default"}  # type: ignore[attr-defined]


def test_raise_and_its_errors(admin_client: Client) -> None:
    counter = make_counter(make_rule())
    assert "already 100" in admin_client.post(page(counter, "raise"), {"to": "99"}).content.decode()
    assert admin_client.post(page(counter, "raise"), {"to": "x"}).status_code == 200
    assert admin_client.post(page(counter, "raise"), {"to": str(2**63)}).status_code == 200
    assert logged() == []
    assert admin_client.post(page(counter, "raise"), {"to": "5000"}).status_code == 302
    assert IdCounter.objects.get().bound == 5000
    assert logged() == ["Raised: the next number was 100 and is now 5,000."]


@pytest.mark.parametrize("typed", ["", "500", "order/shop", "order/shop 501", "order/Shop 500", "order/shop  500"])
def test_lower_requires_the_exact_text(admin_client: Client, typed: str) -> None:
    counter = make_counter(make_rule(), bound=600)
    reply = admin_client.post(page(counter, "lower"), {"to": "500", "confirmation": typed})
    assert reply.status_code == 200
    assert IdCounter.objects.get().bound == 600
    assert logged() == []


def test_lower_lowers_and_is_noted(admin_client: Client) -> None:
    counter = make_counter(make_rule(), bound=600)
    assert "will be issued a second time" in admin_client.get(page(counter, "lower")).content.decode()
    assert admin_client.post(page(counter, "lower"), NUMBERS).status_code == 302
    assert IdCounter.objects.get().bound == 500
    assert logged() == ["Lowered: the next number was 600 and is now 500."]


def test_lower_sets_the_cycle_back_where_it_is_ahead(admin_client: Client) -> None:
    counter = make_counter(make_rule(), bound=600)
    assert "cycle_back" not in admin_client.get(page(counter, "lower")).content.decode()
    IdCounter.objects.update(
        cycle_start=counter.cycle_start + DAY_SECONDS,
        cycle_end=counter.cycle_end + DAY_SECONDS,
        shown=counter.shown + DAY_SECONDS,
    )
    assert "cycle_back" in admin_client.get(page(counter, "lower")).content.decode()
    assert admin_client.post(page(counter, "lower"), NUMBERS | {"cycle_back": "on"}).status_code == 302
    assert IdCounter.objects.get().cycle_start == counter.cycle_start
    assert "cycle set back" in logged()[0]


@override_settings(RESTY_DJANGO={"IDS": {"STEP": 2, "OFFSET": 1}})
def test_confirm_step(admin_client: Client) -> None:
    counter = make_counter(make_rule(), bound=100)
    html = admin_client.get(page(counter, "confirm-step")).content.decode()
    assert 'value="100"' in html
    assert "confirm-step/" in admin_client.get(page(counter)).content.decode()
    admin_client.post(page(counter, "confirm-step"), NUMBERS | {"confirmation": "yes"})
    assert IdCounter.objects.get().step == 1
    assert admin_client.post(page(counter, "confirm-step"), NUMBERS).status_code == 302
    assert list(IdCounter.objects.values_list("node_offset", "step", "bound")) == [(0, 2, 500), (1, 2, 501)]
    assert logged() == ["Step 1 changed to 2, floor 500: the next number was 100 and is now 500."]
    assert "already" in admin_client.post(page(counter, "confirm-step"), NUMBERS).content.decode()


def test_confirming_the_step_of_a_removed_node_returns_to_the_list(admin_client: Client) -> None:
    counter = make_counter(make_rule(), step=3, node_offset=2)
    reply = admin_client.post(page(counter, "confirm-step"), NUMBERS)
    assert reply.headers["Location"] == COUNTERS
    assert admin_client.get(COUNTERS).status_code == 200


# --- who may do what ------------------------------------------------------------------------------------------------


def test_issuing_for_a_rule_requires_the_permission() -> None:
    rule = make_rule()
    url, change = f"{RULES}{rule.pk}/issue/", f"{RULES}{rule.pk}/change/"
    stranger, owner = person("view_idrule", "change_idrule"), person("view_idrule", "issue_id")
    assert stranger.get(url).status_code == stranger.post(url, {"app": ""}).status_code == 403
    assert "issue/" not in stranger.get(change).content.decode()
    assert "issue/" in owner.get(change).content.decode()
    assert not IdCounter.objects.exists()
    assert owner.post(url, {"app": ""}).status_code == 302


def test_actions_on_a_deleted_counter(admin_client: Client) -> None:
    for action in ACTIONS:
        assert admin_client.get(f"{COUNTERS}99/{action}/").status_code == 302
        assert admin_client.post(f"{COUNTERS}99/{action}/", NUMBERS).status_code == 302


def test_list_is_quick_with_many_counters(admin_client: Client, django_assert_max_num_queries: object) -> None:
    rule = make_rule()
    for number in range(60):
        make_counter(rule, f"app{number}")
    started = time.monotonic()
    with django_assert_max_num_queries(12):  # type: ignore[operator]
        assert admin_client.get(COUNTERS).status_code == 200
    assert time.monotonic() - started < 5


def test_messages_write_the_name_of_a_rule_as_it_is(admin_client: Client) -> None:
    counter = make_counter(make_rule("shipment"), bound=100)
    url = f"/admin/resty_ids/idcounter/{counter.pk}/"
    for action, data in (
        ("raise", {"to": 200}),
        ("lower", {"to": 150, "confirmation": "shipment/shop 150"}),
        ("issue", {}),
    ):
        page = admin_client.post(f"{url}{action}/", data, follow=True)
        assert page.redirect_chain, action
        text = page.content.decode()
        assert "shipment" in text
        assert "Shipment" not in text, action
