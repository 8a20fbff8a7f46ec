"""The overview: which tiles are shown to whom, what they tell, and what a panel that fails does to the others."""

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
from django.utils import timezone

from resty_django import asking, overview
from resty_django.cache import mlcaches
from resty_django.ids import service
from resty_django.ids.models import IdRule
from resty_django.ids.stats import add
from resty_django.limits import stats as limit_stats
from resty_django.limits.decision import Decision
from resty_django.overview import Figure, Panel, Row, Tile
from resty_django.shdict import shdicts

pytestmark = pytest.mark.django_db

PAGE = "/admin/resty_django/overview/"


def names(text: str) -> list[str]:
    """The tiles of a page."""
    return re.findall(r'id="resty-tile-(\w+)"', text)


def tile_of(text: str, name: str) -> str:
    found = re.search(rf'aria-labelledby="resty-tile-{name}">(.*?)</section>', text, re.DOTALL)
    assert found is not None, name
    return found[1]


def panel(name: str, ask: Callable[[], Any], **more: Any) -> None:
    overview.register(Panel(name, name.title(), ask, **{"permissions": ("resty_django.view_overview",), **more}))


def test_the_page_is_in_the_list_of_apps_and_shows_every_part(boss: Client) -> None:
    assert f'href="{PAGE}"' in boss.get("/admin/").content.decode()
    text = boss.get(PAGE).content.decode()
    assert set(names(text)) >= {"dictionaries", "events", "logs", "ids", "limits", "cache"}
    assert f'href="{reverse("admin:resty_ids_idcounter_changelist")}"' in tile_of(text, "ids")
    assert f'href="{reverse("admin:resty_limits_limitpolicy_changelist")}"' in tile_of(text, "limits")


def test_things_without_rows_cannot_be_added_or_changed_by_the_forms_of_django(boss: Client) -> None:
    listed = boss.get("/admin/").content.decode()
    for address in ("resty_django/overview", "resty_django/shareddictionary", "resty_cache/cache", "resty_qless/queue"):
        assert f'"/admin/{address}/"' in listed
        assert f'"/admin/{address}/add/"' not in listed
        (row,) = re.findall(rf'<tr class="model-{address.rpartition("/")[2]}[ "].*?</tr>', listed, re.DOTALL)
        assert "viewlink" in row
        assert "changelink" not in row


def test_each_part_is_shown_to_those_who_may_see_its_page(person: Callable[..., Client]) -> None:
    assert person().get(PAGE).status_code == 403
    text = person("resty_django.view_overview").get(PAGE).content.decode()
    assert set(names(text)) == {"events", "logs"}
    text = person("resty_django.view_overview", "resty_limits.view_limitpolicy").get(PAGE).content.decode()
    assert set(names(text)) == {"events", "logs", "limits"}
    assert person("resty_limits.view_limitpolicy").get(PAGE).status_code == 403


def test_nothing_is_done_by_post_and_nobody_sees_it_without_signing_in(boss: Client) -> None:
    assert boss.post(PAGE).status_code == 405
    assert Client().get(PAGE).status_code == 302


def test_the_page_keeps_to_a_strict_policy(boss: Client) -> None:
    add("order", 3, time.time())
    IdRule.objects.create(name="order", source="{counter}")
    response = boss.get(PAGE)
    text = response.content.decode()
    assert "script-src" not in response.headers["Content-Security-Policy"]
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", text.partition("resty-overview")[2])
    assert "resty_django/live.js" in text
    assert 'data-resty-live="10"' in text
    assert "no-store" in response.headers["Cache-Control"]


def test_ids_tell_pace_and_head_room(boss: Client) -> None:
    rule = IdRule.objects.create(name="order", source="{counter:04d}", max_counter=99)
    IdRule.objects.create(name="free", source="{counter}")
    now = time.time()
    add("order", 50, now - 120)
    rule.counters.create(
        app_name="shop",
        node_offset=0,
        step=1,
        bound=95,
        shown=0,
        cycle_start=0,
        cycle_end=2**62,
        cycle_began=timezone.now(),
        cycle_first=0,
    )
    text = tile_of(boss.get(PAGE).content.decode(), "ids")
    assert ">50<" in text
    assert "10</dd>" in text  # 50 in five minutes
    assert "Rule order has the least." in text
    assert "5.0 %" in text
    assert "Look at this" in text
    assert "<svg" in text


def test_ids_given_out_are_counted_without_slowing_them(django_capture_on_commit_callbacks: Any) -> None:
    IdRule.objects.create(name="order", source="{counter}")
    this = service.IdService()
    this._issued_before = {"order": 7}
    assert this._handing.hand_in()
    this._issued_before["order"] = 9
    assert this._handing.hand_in()
    assert this._handing.hand_in()
    from resty_django.ids.stats import issued

    found = issued(["order", "never"])
    assert found["order"].total == 9
    assert found["order"].minutes[-1] + found["order"].minutes[-2] == 9
    assert found["never"].total == 0


def test_counts_that_cannot_be_handed_in_are_kept(settings: Any) -> None:
    from resty_django.ids.stats import Handing, issued

    counts = {"order": 4}
    handing = Handing(lambda: counts)
    good = settings.RESTY_DJANGO
    settings.RESTY_DJANGO = {
        **good,
        "IDS": {"STATS": "default"},
        "SHARED_DICTS": {"default": {"PATH": "/proc/nowhere"}},
    }
    assert not handing.hand_in()
    settings.RESTY_DJANGO = good
    counts["order"] = 6
    assert handing.hand_in()
    assert issued(["order"])["order"].total == 6


def test_limits_tell_the_last_hour(boss: Client) -> None:
    good, bad = Decision(True, 0.0, 1, 1, 0.0), Decision(False, 0.0, 1, 0, 1.0)
    for decision in (good, good, bad):
        limit_stats.record("orders", "key", decision)
    text = tile_of(boss.get(PAGE).content.decode(), "limits")
    assert re.search(r"Passed</dt><dd>2<", text)
    assert re.search(r"Refused</dt><dd>1<", text)
    assert "orders" in text


def test_caches_tell_which_level_answered(boss: Client) -> None:
    cache = mlcaches["default"]
    for _ in range(4):
        cache.get("key", lambda: 5)
    text = tile_of(boss.get(PAGE).content.decode(), "cache")
    assert re.search(r"Calls</dt><dd>4<", text)
    assert "75.0 %" in text
    assert "25.0 %" in text


def test_a_panel_that_fails_says_so_and_breaks_nothing(boss: Client) -> None:
    def fails() -> Tile:
        raise OSError("<b>down</b>")

    panel("broken", fails)
    text = boss.get(PAGE).content.decode()
    assert "OSError: &lt;b&gt;down&lt;/b&gt;" in tile_of(text, "broken")
    assert {"ids", "limits"} <= set(names(text))


def test_a_panel_that_hangs_takes_no_more_than_its_time() -> None:
    gate, asked = threading.Event(), []

    def hangs() -> Tile:
        asked.append(1)
        gate.wait(60)
        return Tile()

    slow = Panel("slow", "Slow", hangs, ())
    quick = Panel("quick", "Quick", lambda: Tile(), ())
    first, second = overview.answers([slow, quick], seconds=0.1)
    assert "did not answer within 0.1 s" in first.error
    assert second.tile == Tile()
    again, _ = overview.answers([slow, quick], seconds=0.1)
    assert "still does not answer" in again.error
    assert len(asked) == 1
    gate.set()
    asking._late["panel slow"].thread.join(30)
    assert overview.answers([slow], seconds=30)[0].tile == Tile()
    assert len(asked) == 2


def test_what_others_wrote_is_escaped_and_long_lists_are_cut(boss: Client) -> None:
    rows = [Row(f"<script>{n}</script>", [Figure("n", "N", n)]) for n in range(20)]
    panel("hostile", lambda: overview.tile([Figure("n", "N", None, note="<i>")], rows, notes=["\x00<u>"]))
    text = tile_of(boss.get(PAGE).content.decode(), "hostile")
    assert "<script>" not in text
    assert "&lt;script&gt;0&lt;/script&gt;" in text
    assert "and 12 more" in text
    assert "&lt;i&gt;" in text
    assert "\\x00&lt;u&gt;" in text


def test_a_page_that_the_site_does_not_have_is_no_link_and_an_app_that_is_missing_no_tile(boss: Client) -> None:
    panel("alone", Tile, page="nowhere_at_all")
    panel("absent", Tile, app="resty_django.nowhere")
    text = boss.get(PAGE).content.decode()
    assert "href" not in tile_of(text, "alone")
    assert "absent" not in names(text)


def test_a_dictionary_that_cannot_be_used_hides_no_other(boss: Client, settings: Any) -> None:
    broken = {"broken": {"PATH": "/proc/nowhere"}}
    settings.RESTY_DJANGO = {"SHARED_DICTS": {**settings.RESTY_DJANGO["SHARED_DICTS"], **broken}}
    text = tile_of(boss.get(PAGE).content.decode(), "dictionaries")
    assert "Not known:" in text
    assert "events" in text
    shdicts.close_all()


def test_the_tag_shows_tiles_to_those_who_may_see_them(boss: Client) -> None:
    assert names(boss.get("/admin/").content.decode())
    assert not names(boss.get("/admin/resty_limits/").content.decode())
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    page = Template("{% load resty_overview %}{% resty_overview %}")
    assert not names(page.render(Context({"request": request})))
