"""Overview: permissions, content of tiles, and panels that fail."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.template import Context, Template
from django.test import Client, RequestFactory
from django.urls import reverse

from resty_django import concurrency, overview
from resty_django.cache import MLCache
from resty_django.ids import service
from resty_django.ids.models import IdRule
from resty_django.limits.decision import Decision
from resty_django.limits.statistics import reporter as limit_stats
from resty_django.overview import Figure, Panel, Tile, TileRow
from resty_django.shdict import shdicts
from tests.integration.ids.admin_tools import add_issued, make_counter

pytestmark = pytest.mark.django_db

PAGE = "/admin/resty_django/overview/"


def names(text: str) -> list[str]:
    """Return the names of a page's tiles."""
    return re.findall(r'id="resty-tile-(\w+)"', text)


def tile_of(text: str, name: str) -> str:
    match = re.search(rf'aria-labelledby="resty-tile-{name}">(.*?)</section>', text, re.DOTALL)
    assert match is not None, name
    return match[1]


def panel(name: str, ask: Callable[[], Any], **options: Any) -> None:
    overview.register(Panel(name, name.title(), ask, **{"permissions": ("resty_django.view_overview",), **options}))


def test_the_page_is_in_the_list_of_apps_and_shows_every_part(admin_client: Client) -> None:
    assert f'href="{PAGE}"' in admin_client.get("/admin/").content.decode()
    text = admin_client.get(PAGE).content.decode()
    assert set(names(text)) == {"dictionaries", "ids", "limits", "cache", "jobs"}  # events and logs are at zero
    assert f'href="{reverse("admin:resty_ids_idcounter_changelist")}"' in tile_of(text, "ids")
    assert f'href="{reverse("admin:resty_limits_limitpolicy_changelist")}"' in tile_of(text, "limits")


def test_read_only_admins_disable_djangos_forms(admin_client: Client) -> None:
    listed = admin_client.get("/admin/").content.decode()
    for address in ("resty_django/overview", "resty_django/shareddictionary", "resty_cache/cache", "resty_qless/queue"):
        assert f'"/admin/{address}/"' in listed
        assert f'"/admin/{address}/add/"' not in listed
        (row,) = re.findall(rf'<tr class="model-{address.rpartition("/")[2]}[ "].*?</tr>', listed, re.DOTALL)
        assert "viewlink" in row
        assert "changelink" not in row


def test_tiles_depend_on_permissions(person: Callable[..., Client]) -> None:
    assert person().get(PAGE).status_code == 403
    text = person("resty_django.view_overview").get(PAGE).content.decode()
    assert not names(text)
    text = person("resty_django.view_overview", "resty_limits.view_limitpolicy").get(PAGE).content.decode()
    assert set(names(text)) == {"limits"}
    assert person("resty_limits.view_limitpolicy").get(PAGE).status_code == 403


def test_the_page_keeps_to_a_strict_policy(admin_client: Client) -> None:
    add_issued("order", 3, time.time())
    IdRule.objects.create(name="order", source="{counter}")
    response = admin_client.get(PAGE)
    text = response.content.decode()
    assert "script-src" not in response.headers["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", text.partition("resty-overview")[2])
    assert "resty_django/live.js" in text
    assert 'data-resty-live="10"' in text
    assert "no-store" in response.headers["Cache-Control"]


def test_tile_of_ids_shows_rate_and_head_room(admin_client: Client) -> None:
    rule = IdRule.objects.create(name="order", source="{counter:04d}", max_counter=99)
    IdRule.objects.create(name="free", source="{counter}")
    now = time.time()
    add_issued("order", 50, now - 120)
    make_counter(rule, bound=95, shown=0, cycle_start=0, cycle_end=2**62, cycle_first=0)
    text = tile_of(admin_client.get(PAGE).content.decode(), "ids")
    assert ">50<" in text
    assert ">10</a></dd>" in text  # 50 in five minutes
    assert "In rule order." in text
    assert "5 %" in text
    assert "Needs attention" in text
    assert "<svg" in text


def test_counting_does_not_slow_the_issue_of_ids(django_capture_on_commit_callbacks: Any) -> None:
    IdRule.objects.create(name="order", source="{counter}")
    id_service = service.IdService()
    id_service.issued_before = {"order": 7}
    assert id_service.stats_reporter.flush()
    id_service.issued_before["order"] = 9
    assert id_service.stats_reporter.flush()
    assert id_service.stats_reporter.flush()
    from resty_django.ids.service.stats import issued

    series = issued(["order", "never"])
    assert series["order"].total == 9
    assert series["order"].minutes[-1] + series["order"].minutes[-2] == 9
    assert series["never"].total == 0


def test_counts_that_cannot_be_stored_are_kept(settings: Any) -> None:
    from resty_django.ids.service.stats import IssuedIdsReporter, issued

    counts = {"order": 4}
    handing = IssuedIdsReporter(lambda: counts)
    good = settings.RESTY_DJANGO
    settings.RESTY_DJANGO = {
        **good,
        "IDS": {"STATS": "default"},
        "SHARED_DICTS": {"default": {"PATH": "/proc/nowhere"}},
    }
    assert not handing.flush()
    settings.RESTY_DJANGO = good
    counts["order"] = 6
    assert handing.flush()
    assert issued(["order"])["order"].total == 6


def test_tile_of_limits_shows_the_last_hour(admin_client: Client) -> None:
    good, bad = Decision(True, 0.0, 1, 1, 0.0), Decision(False, 0.0, 1, 0, 1.0)
    for decision in (good, good, bad):
        limit_stats.stats.record("orders", "key", decision)
    text = tile_of(admin_client.get(PAGE).content.decode(), "limits")
    assert re.search(r"Passed</dt><dd><a [^>]*>2<", text)
    assert re.search(r"Refused</dt><dd><a [^>]*>1<", text)
    assert "orders" in text


def test_tile_of_caches_shows_hit_levels(admin_client: Client, empty_cache: MLCache) -> None:
    for _ in range(4):
        empty_cache.get("key", lambda: 5)
    text = tile_of(admin_client.get(PAGE).content.decode(), "cache")
    assert re.search(r"Calls</dt><dd><a [^>]*>4<", text)
    assert "75 %" in text
    assert "25 %" in text


def test_rows_with_other_figures_have_a_cell_in_each_column(admin_client: Client) -> None:
    more = TileRow("shadowed", [Figure("passed", "Passed", 7), Figure("shadowed", "Would be refused", 9)])
    panel("mixed", lambda: overview.tile([], [TileRow("plain", [Figure("passed", "Passed", 5)]), more]))
    tile = tile_of(admin_client.get(PAGE).content.decode(), "mixed")
    assert tile.count('<th scope="col"') == 3
    assert [len(re.findall(r"<t[hd][ >]", row)) for row in re.findall(r"<tr>(.*?)</tr>", tile)] == [3, 3, 3]


def test_failing_panel_shows_its_error_next_to_the_others(admin_client: Client) -> None:
    def fails() -> Tile:
        raise OSError("<b>down</b>")

    panel("broken", fails)
    text = admin_client.get(PAGE).content.decode()
    assert "OSError: &lt;b&gt;down&lt;/b&gt;" in tile_of(text, "broken")
    assert {"ids", "limits"} <= set(names(text))


def test_hanging_panel_times_out() -> None:
    gate, calls = threading.Event(), []

    def hangs() -> Tile:
        calls.append(1)
        gate.wait(60)
        return Tile()

    slow = Panel("slow", "Slow", hangs, ())
    quick = Panel("quick", "Quick", lambda: Tile(), ())
    first, second = overview.answers([slow, quick], seconds=0.1)
    assert "did not respond within 0.1 s" in first.error
    assert second.tile == Tile()
    third, _ = overview.answers([slow, quick], seconds=0.1)
    assert "still not responding" in third.error
    assert len(calls) == 1
    gate.set()
    concurrency.late_workers["panel slow"].thread.join(30)
    assert overview.answers([slow], seconds=30)[0].tile == Tile()
    assert len(calls) == 2


def test_external_text_is_escaped_and_long_lists_are_cut(admin_client: Client) -> None:
    rows = [TileRow(f"<script>{n}</script>", [Figure("n", "N", n)]) for n in range(20)]
    panel("hostile", lambda: overview.tile([Figure("n", "N", None, note="<i>")], rows, notes=["\x00<u>"]))
    text = tile_of(admin_client.get(PAGE).content.decode(), "hostile")
    assert "<script>" not in text
    assert "&lt;script&gt;0&lt;/script&gt;" in text
    assert "and 12 more" in text
    assert "&lt;i&gt;" in text
    assert "\\x00&lt;u&gt;" in text


def test_missing_pages_have_no_link_and_missing_apps_no_tile(admin_client: Client) -> None:
    panel("alone", Tile, page="nowhere_at_all")
    panel("absent", Tile, app="resty_django.nowhere")
    text = admin_client.get(PAGE).content.decode()
    assert "href" not in tile_of(text, "alone")
    assert "absent" not in names(text)


def test_unusable_dictionary_does_not_hide_the_others(admin_client: Client, settings: Any) -> None:
    broken = {"broken": {"PATH": "/proc/nowhere"}}
    settings.RESTY_DJANGO = {"SHARED_DICTS": {**settings.RESTY_DJANGO["SHARED_DICTS"], **broken}}
    text = tile_of(admin_client.get(PAGE).content.decode(), "dictionaries")
    assert "Not known:" in text
    assert "events" in text
    shdicts.close_all()


def test_template_tag_depends_on_permissions(admin_client: Client) -> None:
    assert names(admin_client.get("/admin/").content.decode())
    assert not names(admin_client.get("/admin/resty_limits/").content.decode())
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    page = Template("{% load resty_overview %}{% resty_overview %}")
    assert not names(page.render(Context({"request": request})))


@pytest.mark.redis
def test_a_new_site_shows_what_to_do_first(admin_client: Client, jobs_site: Any) -> None:
    text = admin_client.get(PAGE).content.decode()
    for name, first in (
        ("ids", "Add a rule"),
        ("limits", "Add a policy"),
        ("cache", "Nothing was cached yet"),
        ("jobs", "No job yet"),
    ):
        assert first in tile_of(text, name), name
    assert "resty-alarm" not in text.partition("resty-overview")[2]


@pytest.mark.redis
def test_problems_come_first_and_each_figure_is_a_link(admin_client: Client, jobs_site: Any) -> None:
    rows = [
        TileRow("calm", [Figure("n", "N", 1)]),
        TileRow("eager", [Figure("n", "N", 2, level="warning")], query="q=eager"),
    ]
    panel("fine", lambda: overview.tile([Figure("n", "N", 3)], rows[:1]), page="resty_ids_idrule_changelist", order=1)
    failed = Figure("failed", "Failed", 22, level="error", page="resty_ids_idrule_changelist?q=22")
    panel("late", lambda: overview.tile([failed], rows), page="resty_ids_idrule_changelist", order=999)
    panel("nothing", lambda: None)
    rules = reverse("admin:resty_ids_idrule_changelist")
    for address in (PAGE, "/admin/"):
        text = admin_client.get(address).content.decode()
        assert names(text)[0] == "late"
        assert "nothing" not in names(text)
        assert f'<a href="{rules}?q=22">22</a>' in tile_of(text, "late")
        assert f'<a href="{rules}">3</a>' in tile_of(text, "fine")
        assert f'<a href="{rules}?q=eager">eager</a>' in tile_of(text, "late")
        assert ("calm" in tile_of(text, "late")) == (address == PAGE)  # the index shows what needs attention


@pytest.mark.redis
def test_the_list_of_apps_has_the_order_of_use(admin_client: Client, jobs_site: Any) -> None:
    listed = re.findall(r'<tr class="model-(\w+)', admin_client.get("/admin/").content.decode())
    assert listed[:2] == ["overview", "shareddictionary"]
    jobs = listed.index("queue")
    assert listed[jobs : jobs + 5] == ["queue", "job", "failuregroup", "worker", "recurringjob"]
    assert not {"jobgroup", "jobclass", "tag", "option", "archivedjob"} & set(listed)
    assert admin_client.get("/admin/resty_qless/tag/").status_code == 200
