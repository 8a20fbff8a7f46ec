"""The overview as JSON."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from resty_django import overview
from resty_django.overview import Figure, Panel, Row

pytestmark = pytest.mark.django_db

ADDRESS = "/api/overview/"


def test_panels_depend_on_permissions(person: Callable[..., Client], limits_site: object) -> None:
    assert Client().get(ADDRESS).status_code in (401, 403)
    assert person("resty_limits.view_limitpolicy").get(ADDRESS).json()["code"] == "permission_denied"
    client = person("resty_django.view_overview", "resty_limits.view_limitpolicy")
    panels = client.get(ADDRESS).json()["panels"]
    assert {panel["name"] for panel in panels} == {"events", "logs", "limits"}
    limits = next(panel for panel in panels if panel["name"] == "limits")
    assert limits["error"] == ""
    assert [figure["name"] for figure in limits["figures"]] == ["passed", "delayed", "refused"]
    assert client.post(ADDRESS).status_code == 405


def test_failing_panels_and_odd_values_are_json(admin_client: Client) -> None:
    def fails() -> overview.Tile:
        raise OSError("down")

    figure = Figure("n", "N", float("nan"), "share", "warning", "a note")
    row = Row("\ud800", [figure], "")
    odd_tile = overview.tile([figure], [row] * 10, bars=[1, 2])
    overview.register(Panel("broken", "Broken", fails, ("x.y",)))
    overview.register(Panel("odd", "Odd", lambda: odd_tile, ("x.y",)))
    panels = {panel["name"]: panel for panel in admin_client.get(ADDRESS).json()["panels"]}
    assert panels["broken"]["error"] == "OSError: down"
    assert panels["broken"]["figures"] == []
    odd = panels["odd"]
    figure_json = {"name": "n", "label": "N", "value": None, "unit": "share", "level": "warning", "note": "a note"}
    assert odd["figures"] == [figure_json]
    assert odd["rows"][0] == {"subject": "?", "error": "", "figures": [figure_json]}
    assert (len(odd["rows"]), odd["more"], odd["bars"]) == (8, 2, [1, 2])
