"""The overview as JSON."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from resty_django import overview
from resty_django.overview import Figure, Panel, Row

pytestmark = pytest.mark.django_db

ADDRESS = "/api/overview/"


def test_it_tells_the_parts_that_the_user_may_see(person: Callable[..., Client]) -> None:
    assert Client().get(ADDRESS).status_code in (401, 403)
    assert person("resty_limits.view_limitpolicy").get(ADDRESS).json()["code"] == "permission_denied"
    client = person("resty_django.view_overview", "resty_limits.view_limitpolicy")
    panels = client.get(ADDRESS).json()["panels"]
    assert {panel["name"] for panel in panels} == {"events", "logs", "limits"}
    limits = next(panel for panel in panels if panel["name"] == "limits")
    assert limits["error"] == ""
    assert [figure["name"] for figure in limits["figures"]] == ["passed", "delayed", "refused"]
    assert client.post(ADDRESS).status_code == 405


def test_panels_that_fail_and_odd_values_are_told(boss: Client) -> None:
    def fails() -> overview.Tile:
        raise OSError("down")

    figure = Figure("n", "N", float("nan"), "share", "warning", "a note")
    row = Row("\ud800", [figure], "")
    made = overview.tile([figure], [row] * 10, bars=[1, 2])
    overview.register(Panel("broken", "Broken", fails, ("x.y",)))
    overview.register(Panel("odd", "Odd", lambda: made, ("x.y",)))
    found = {panel["name"]: panel for panel in boss.get(ADDRESS).json()["panels"]}
    assert found["broken"]["error"] == "OSError: down"
    assert found["broken"]["figures"] == []
    odd = found["odd"]
    told = {"name": "n", "label": "N", "value": None, "unit": "share", "level": "warning", "note": "a note"}
    assert odd["figures"] == [told]
    assert odd["rows"][0] == {"subject": "?", "error": "", "figures": [told]}
    assert (len(odd["rows"]), odd["more"], odd["bars"]) == (8, 2, [1, 2])
