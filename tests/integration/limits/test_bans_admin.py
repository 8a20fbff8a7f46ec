"""The admin of bans: list, search and lifting; permissions, history and hostile keys."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote

from resty_django.admin.statistics import KeyView
from resty_django.limits import bans
from resty_django.limits.bans import registry
from resty_django.limits.bans.registry import NOT_STORED_KEY
from resty_django.shdict import shdicts
from tests.integration.limits.policy_tools import person
from tests.staff import logged, text_of

BANS = "/admin/resty_limits/keyban/"
pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.usefixtures("bans_store")]


def page_of(ban: bans.Ban, name: str = "change") -> str:
    return f"{BANS}{quote(KeyView.of(ban.name).token)}/{name}/"


def test_the_list_shows_and_finds_bans() -> None:
    bans.add("192.0.2.7", for_="1h", reason="scans")
    bans.add("198.51.100.1", for_="1h", limit="shop.search")
    client = person("view_keyban")
    text = text_of(client, BANS)
    for part in ("192.0.2.7", "all limits", "scans", "198.51.100.1", "shop.search", "2 of 2 bans"):
        assert part in text
    for find in ("SHOP", "198.51"):
        text = text_of(client, f"{BANS}?find={find}")
        assert "198.51.100.1" in text
        assert "192.0.2.7" not in text
        assert "1 of 2 bans" in text
    assert "No bans match" in text_of(client, f"{BANS}?find=zzz")


def test_a_ban_is_lifted() -> None:
    ban = bans.add("192.0.2.7", for_="1h", reason="scans")
    client = person("view_keyban", "lift_keyban")
    assert page_of(ban, "lift") in text_of(client, page_of(ban))
    assert "192.0.2.7" in text_of(client, page_of(ban, "lift"))
    assert bans.find("192.0.2.7") is not None
    response = client.post(page_of(ban, "lift"), follow=True)
    assert "Lifted the ban of" in response.content.decode()
    assert bans.find("192.0.2.7") is None
    (entry,) = LogEntry.objects.all()
    assert (entry.action_flag, entry.object_repr) == (CHANGE, "192.0.2.7")
    assert logged() == ["Lifted the ban by all limits."]
    assert client.post(page_of(ban, "lift")).status_code == 302
    assert len(logged()) == 1


def test_unknown_bans() -> None:
    client = person("view_keyban", "lift_keyban")
    for token in ("no", KeyView.of("ban:0::unknown").token, KeyView.of("other").token, "%00"):
        assert client.get(f"{BANS}{token}/change/").status_code == 302
        assert client.post(f"{BANS}{token}/lift/").status_code == 302


def test_bans_that_were_not_stored_are_reported() -> None:
    shdicts["limits"].set(NOT_STORED_KEY, 2)
    assert "2 bans were not stored" in text_of(person("view_keyban"), BANS)


# --- several bans ----------------------------------------------------------------------------------------------------


def test_selected_bans_are_lifted_after_a_confirmation_with_their_number() -> None:
    first, second = (bans.add(key, for_="1h", reason="scans") for key in ("192.0.2.7", "192.0.2.8"))
    bans.add("198.51.100.1", for_="1h", limit="shop.search")
    client = person("view_keyban", "lift_keyban")
    assert text_of(client, BANS).count('name="pick"') == 3
    picks = [KeyView.of(ban.name).token for ban in (first, second)]
    text = client.post(f"{BANS}lift/", {"verb": "lift", "pick": picks}).content.decode()
    assert "2 of 2 bans selected." in text
    assert "192.0.2.8" in text
    assert "This cannot be undone" in text
    assert len(bans.current_bans()) == 3
    assert logged() == []
    response = client.post(f"{BANS}lift/", {"verb": "lift", "pick": picks, "confirmed": "yes"}, follow=True)
    assert "Lifted 2 bans." in response.content.decode()
    assert [ban.key for ban in bans.current_bans()] == ["198.51.100.1"]
    assert LogEntry.objects.count() == 2


def test_all_bans_of_a_search_are_lifted() -> None:
    for key in ("192.0.2.7", "192.0.2.8", "198.51.100.1"):
        bans.add(key, for_="1h")
    client = person("view_keyban", "lift_keyban")
    assert "Select all 2 rows" in text_of(client, f"{BANS}?find=192")
    everything = {"verb": "lift", "all": "yes"}
    assert "2 of 2 bans selected." in client.post(f"{BANS}lift/?find=192", everything).content.decode()
    client.post(f"{BANS}lift/?find=192", {**everything, "confirmed": "yes"})
    assert [ban.key for ban in bans.current_bans()] == ["198.51.100.1"]


def test_several_bans_are_offered_to_those_who_may_lift_them() -> None:
    bans.add("192.0.2.7", for_="1h")
    client = person("view_keyban", "lift_keyban")
    for shows, text in (
        (False, text_of(person("view_keyban"), BANS)),
        (False, text_of(client, f"{BANS}?find=zzz")),
        (True, text_of(client, BANS)),
    ):
        assert ('name="pick"' in text) == ("resty_django/bulk.js" in text) == shows
    assert (
        "Nothing selected"
        in client.post(f"{BANS}lift/", {"verb": "lift", "confirmed": "yes"}, follow=True).content.decode()
    )
    assert len(bans.current_bans()) == 1


@pytest.mark.parametrize("until", [1e12, 1e300, float("inf")])
def test_a_ban_of_any_length_has_pages(until: float) -> None:
    ban = bans.add("192.0.2.7", for_="1h")._replace(until=until)
    registry.dictionary().set(ban.name, list(ban))
    client = person("view_keyban", "lift_keyban")
    for url in (BANS, page_of(ban), page_of(ban, "lift"), f"{BANS}?export=csv"):
        response = client.get(url)
        assert response.status_code == 200, url
        assert b"192.0.2.7" in (b"".join(response) if response.streaming else response.content), url
