"""The HTTP API, asked as a client asks it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test import override_settings
from django.urls import reverse
from drf_spectacular.openapi import AutoSchema
from rest_framework.permissions import AllowAny
from rest_framework.schemas import DefaultSchema
from rest_framework.test import APIClient
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from resty_django.api.openapi import view_schema
from resty_django.api.parsing import MAX_BODY_BYTES
from resty_django.ids import next_id, service
from resty_django.ids.api.errors import exception_handler
from resty_django.ids.api.views import IssueView
from resty_django.ids.errors import Exhausted, Unavailable
from resty_django.ids.models import IdCounter, IdRule
from tests.integration.ids.admin_tools import LUA

pytestmark = pytest.mark.django_db(transaction=True)

ALL = [
    "issue_id",
    "view_idcounter",
    "view_idrule",
    "add_idrule",
    "change_idrule",
    "delete_idrule",
]
ODD_NAMES = ["a/b", ".", "..", "a?b=c", "ünï€", "x|y\\z", "a;b", "preview", "ids", "a+b", "//", "x.json", "~t-i_l.d~e"]


class Always:
    """A rule of kind python for the tests."""

    def create_id(self, take: Callable[[], int], now: Any, salt: str) -> str:
        return f"P{take():03d}"


PYTHON = "resty_test_rules.Always"


@pytest.fixture
def rule() -> IdRule:
    return make_rule()


def make_rule(name: str = "order", **fields: Any) -> IdRule:
    rule = IdRule(name=name, **{"source": "O{counter:06d}", "max_counter": 999_999, **fields})
    rule.full_clean()
    rule.save()
    service.service().load()
    return rule


def client_with(*permissions: str) -> APIClient:
    user = get_user_model().objects.create_user(f"user{time.monotonic_ns()}")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="resty_ids", codename__in=permissions))
    client = APIClient(raise_request_exception=True)
    client.force_authenticate(user)
    return client


@pytest.fixture
def client() -> APIClient:
    """A user who may do everything except write Lua and Python rules."""
    return client_with(*ALL)


def post(client: APIClient, url: str, body: Any) -> Any:
    return client.post(url, body, format="json")


def problem(response: Any) -> tuple[int, str]:
    """Status and code of an error, whose shape is checked."""
    body = response.json()
    assert response["Content-Type"] == "application/json"
    assert {"code", "message"} <= set(body) <= {"code", "message", "details"}
    assert isinstance(body["message"], str)
    assert body["message"]
    assert isinstance(body.get("details", {}), dict)
    return response.status_code, body["code"]


# --- asking for IDs ------------------------------------------------------------------------------------------------


def test_one_id_and_many(client: APIClient, rule: IdRule) -> None:
    assert post(client, "/api/ids/rules/order/ids/", {}).json() == {"ids": ["O000000"], "count": 1}
    reply = post(client, "/api/ids/rules/order/ids/", {"app": "", "salt": "", "count": 3}).json()
    assert reply == {"ids": ["O000001", "O000002", "O000003"], "count": 3}
    assert post(client, "/api/ids/rules/order/ids/", {"app": "shop"}).json()["ids"] == ["O000000"]
    assert client.post("/api/ids/rules/order/ids/").json()["ids"] == ["O000004"]


def test_as_many_as_the_site_allows(client: APIClient, rule: IdRule) -> None:
    ids = post(client, "/api/ids/rules/order/ids/", {"count": 1000}).json()["ids"]
    assert len(set(ids)) == 1000
    assert problem(post(client, "/api/ids/rules/order/ids/", {"count": 1001})) == (400, "bad_count")


def test_the_salt_reaches_the_rule(client: APIClient) -> None:
    make_rule("salted", source="S{salt:2}{counter:04d}", max_counter=9999)
    assert post(client, "/api/ids/rules/salted/ids/", {"salt": "ab"}).json()["ids"] == ["Sab0000"]
    assert problem(post(client, "/api/ids/rules/salted/ids/", {"salt": "abc"})) == (400, "bad_salt")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "parse_error"),
        (b"{", "parse_error"),
        (b"[]", "parse_error"),
        (b'"text"', "parse_error"),
        (b"\xff\xfe{}", "parse_error"),
        (b'{"app": "\xe9"}', "parse_error"),
        ('{"count": 1}'.encode("utf-16"), "parse_error"),
        (b'\xef\xbb\xbf{"count": 1}', "parse_error"),
        (b'{"count": NaN}', "parse_error"),
        (b'{"count": ' + b"9" * 5000 + b"}", "parse_error"),
        (b"[" * 100_000, "parse_error"),
        (b'{"app":' * 30_000, "parse_error"),
        (b'{"count": 1} x', "parse_error"),
        (b'{"count": true}', "bad_request"),
        (b'{"count": 1e400}', "bad_request"),
        (b'{"count": null}', "bad_request"),
        (b'{"count": 0}', "bad_count"),
        (b'{"count": -1}', "bad_count"),
        (b'{"count": ' + b"9" * 400 + b"}", "bad_count"),
        (b'{"app": 5}', "bad_request"),
        (b'{"app": null}', "bad_request"),
        (b'{"app": "\\ud800"}', "bad_request"),
        (b'{"app": "a\\u0000b"}', "bad_request"),
        (b'{"app": "a b"}', "bad_name"),
        (b'{"app": "' + b"x" * 65 + b'"}', "bad_name"),
        (b'{"app": "' + b"x" * 100_000 + b'"}', "bad_name"),
        (b'{"salt": "\\udfff"}', "bad_request"),
        (b'{"cuont": 5}', "bad_request"),
        (b'{"\\ud800": 5}', "bad_request"),
    ],
)
def test_a_wrong_body_is_an_error_of_the_request(client: APIClient, rule: IdRule, body: bytes, code: str) -> None:
    response = client.generic("POST", "/api/ids/rules/order/ids/", body or b" ", content_type="application/json")
    assert problem(response) == (400, code)
    assert not IdCounter.objects.exists()


def test_a_body_without_end_is_not_read(client: APIClient, rule: IdRule) -> None:
    body = b'{"app": "' + b"x" * MAX_BODY_BYTES + b'"}'
    response = client.generic("POST", "/api/ids/rules/order/ids/", body, content_type="application/json")
    assert problem(response) == (413, "body_too_large")


def test_a_wrong_field_is_named(client: APIClient, rule: IdRule) -> None:
    body = post(client, "/api/ids/rules/order/ids/", {"count": "x", "cuont": 5}).json()
    assert body["details"]["fields"] == {"count": ["A valid integer is required."]}
    body = post(client, "/api/ids/rules/order/ids/", {"cuont": 5}).json()
    assert "app, salt, count" in body["details"]["fields"]["cuont"][0]


def test_a_rule_that_is_unknown_or_disabled(client: APIClient) -> None:
    make_rule("off", enabled=False)
    for name in ("nope", "off", "a%252Fb", "%2500", "x" * 300):
        assert problem(post(client, f"/api/ids/rules/{name}/ids/", {})) == (404, "unknown_rule")


def test_a_used_up_counter_returns_retry_after(client: APIClient) -> None:
    make_rule("day", source="D{now:%y%m%d}{counter:01d}", max_counter=1, reset_seconds=86_400, timezone="UTC")
    assert len(post(client, "/api/ids/rules/day/ids/", {"count": 2}).json()["ids"]) == 2
    response = post(client, "/api/ids/rules/day/ids/", {})
    assert problem(response) == (409, "exhausted")
    assert 0 < int(response["Retry-After"]) <= 86_400
    assert response.json()["details"]["until"] % 86_400 == 0
    make_rule("ever", source="E{counter:01d}", max_counter=1)
    assert post(client, "/api/ids/rules/ever/ids/", {"count": 2}).status_code == 200
    response = post(client, "/api/ids/rules/ever/ids/", {})
    assert problem(response) == (409, "exhausted")
    assert "Retry-After" not in response


@pytest.mark.parametrize("atomic", [False, True])
def test_a_gapless_rule_is_not_served_over_http(client: APIClient, monkeypatch: Any, atomic: bool) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
    make_rule("invoice", gapless=True)
    assert problem(post(client, "/api/ids/rules/invoice/ids/", {})) == (409, "needs_transaction")
    assert not IdCounter.objects.exists()


def test_a_gapless_rule_is_not_served_inside_a_transaction_of_the_site(client: APIClient) -> None:
    make_rule("invoice", gapless=True)
    with transaction.atomic():
        assert problem(post(client, "/api/ids/rules/invoice/ids/", {})) == (409, "needs_transaction")
    assert not IdCounter.objects.exists()


def test_ids_are_issued_where_requests_are_transactions(client: APIClient, rule: IdRule, monkeypatch: Any) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert post(client, "/api/ids/rules/order/ids/", {}).json()["ids"] == ["O000000"]
    body = {"name": "two", "source": "T{counter:06d}", "max_counter": 9}
    assert post(client, "/api/ids/rules/", body).status_code == 201


@pytest.mark.usefixtures("no_refill")
def test_new_names_that_come_too_fast(client: APIClient, rule: IdRule, settings: Any) -> None:
    settings.RESTY_DJANGO = {"IDS": {"NEW_NAMES_PER_SECOND": 1}}
    assert post(client, "/api/ids/rules/order/ids/", {"app": "a"}).status_code == 200
    response = post(client, "/api/ids/rules/order/ids/", {"app": "b"})
    assert problem(response) == (429, "rate_limited")
    assert response["Retry-After"] == "1"


def test_too_many_names(client: APIClient) -> None:
    make_rule("few", max_names=1)
    assert post(client, "/api/ids/rules/few/ids/", {"app": "a"}).status_code == 200
    assert problem(post(client, "/api/ids/rules/few/ids/", {"app": "b"})) == (409, "too_many_names")


def test_a_rule_that_fails_or_does_not_compile(client: APIClient) -> None:
    pytest.importorskip("lupa")
    source = LUA.replace('return string.format("L%03d", counter:generate_counter())', "error('no')")
    IdRule(name="bad", kind="lua", source=source, max_counter=999, fixed_length=False).save()
    assert problem(post(client, "/api/ids/rules/bad/ids/", {})) == (500, "rule_failed")
    IdRule(name="worse", source="{nope}").save()
    service.service().load()
    assert problem(post(client, "/api/ids/rules/worse/ids/", {})) == (500, "bad_rule")


def test_a_database_that_is_down_is_503_and_says_nothing_of_its_address() -> None:
    for error in (Unavailable("the database did not answer: root@10.0.0.9"), OperationalError("root@10.0.0.9")):
        response = exception_handler(error, {})
        assert response is not None
        assert response.status_code == 503
        assert response.data["code"] == "unavailable"
        assert "root" not in response.data["message"]
        assert response["Retry-After"] == "1"


def test_other_errors_of_the_program_stay_errors_of_the_program() -> None:
    assert exception_handler(KeyError("x"), {}) is None
    response = exception_handler(IntegrityError("unique"), {})
    assert response is not None
    assert (response.status_code, response.data["code"]) == (409, "conflict")


def test_an_exhausted_counter_of_the_past_can_be_retried_immediately() -> None:
    response = exception_handler(Exhausted("gone", until=time.time() - 100), {})
    assert response is not None
    assert response["Retry-After"] == "1"


def test_the_throttle_of_the_site_applies(client: APIClient, rule: IdRule, monkeypatch: Any) -> None:
    class Never(BaseThrottle):
        def allow_request(self, request: Any, view: Any) -> bool:
            return False

        def wait(self) -> float:
            return 7

    monkeypatch.setattr(IssueView, "throttle_classes", [Never])
    response = post(client, "/api/ids/rules/order/ids/", {})
    assert problem(response) == (429, "rate_limited")
    assert response["Retry-After"] == "7"


# --- who may -------------------------------------------------------------------------------------------------------

NEW = {"name": "new", "source": "N{counter:06d}", "max_counter": 9}
ENDPOINTS = [
    ("POST", "rules/order/ids/", {}, "issue_id", 200),
    ("GET", "rules/order/counters/?app=shop", None, "view_idcounter", 404),
    ("GET", "counters/", None, "view_idcounter", 200),
    ("GET", "rules/", None, "view_idrule", 200),
    ("GET", "rules/order/", None, "view_idrule", 200),
    ("POST", "rules/order/preview/", {}, "view_idrule", 200),
    ("POST", "rules/", NEW, "add_idrule", 201),
    ("PUT", "rules/order/", {**NEW, "name": "order"}, "change_idrule", 200),
    ("PATCH", "rules/order/", {"description": "x"}, "change_idrule", 200),
    ("DELETE", "rules/order/", None, "delete_idrule", 204),
]


@pytest.mark.parametrize(("method", "path", "body", "permission", "status"), ENDPOINTS)
def test_each_endpoint_needs_its_own_permission(
    rule: IdRule, monkeypatch: Any, method: str, path: str, body: Any, permission: str, status: int
) -> None:
    def send(client: APIClient) -> Any:
        data = json.dumps(body).encode() if body is not None else b""
        return client.generic(method, f"/api/ids/{path}", data, content_type="application/json")

    monkeypatch.setattr(APIView, "permission_classes", [AllowAny])
    assert problem(send(APIClient()))[1] == "not_authenticated"
    others = [name for name in ALL if name != permission]
    assert problem(send(client_with(*others))) == (403, "permission_denied")
    assert IdRule.objects.filter(name="order", version=1).exists()
    assert send(client_with(permission)).status_code == status


def test_anonymous_clients_are_challenged_as_the_site_authenticates(rule: IdRule, monkeypatch: Any) -> None:
    from rest_framework.authentication import BasicAuthentication, SessionAuthentication

    monkeypatch.setattr(IssueView, "authentication_classes", [BasicAuthentication])
    response = APIClient().post("/api/ids/rules/order/ids/")
    assert problem(response) == (401, "not_authenticated")
    assert response["WWW-Authenticate"].startswith("Basic")
    wrong = "Basic " + base64.b64encode(b"nobody:x").decode()
    response = APIClient().post("/api/ids/rules/order/ids/", HTTP_AUTHORIZATION=wrong)
    assert problem(response) == (401, "authentication_failed")
    monkeypatch.setattr(IssueView, "authentication_classes", [SessionAuthentication])
    assert problem(APIClient().post("/api/ids/rules/order/ids/")) == (403, "not_authenticated")


@pytest.mark.parametrize(
    "path", ["", "nope", "rules", "rules/order/nope/", "rules/a/b/ids/", "rules/%FF/ids/", "x/../y"]
)
def test_unknown_urls_are_not_found(client: APIClient, rule: IdRule, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        assert problem(client.generic(method, f"/api/ids/{path}")) == (404, "not_found")
    assert problem(APIClient().get(f"/api/ids/{path}"))[1] == "not_authenticated"


def test_only_json_is_accepted(client: APIClient, rule: IdRule) -> None:
    response = client.post("/api/ids/rules/order/ids/", "count=2", content_type="application/x-www-form-urlencoded")
    assert problem(response) == (415, "unsupported_media_type")
    assert problem(client.get("/api/ids/rules/", HTTP_ACCEPT="text/html")) == (406, "not_acceptable")
    assert problem(client.get("/api/ids/rules/?format=xml")) == (404, "not_found")


# --- counters ------------------------------------------------------------------------------------------------------


def test_the_position_of_a_counter_is_returned(client: APIClient, rule: IdRule) -> None:
    url = "/api/ids/rules/order/counters/"
    assert problem(client.get(url, {"app": "shop"})) == (404, "not_exist")
    assert not IdCounter.objects.exists()
    post(client, "/api/ids/rules/order/ids/", {"app": "shop", "count": 5})
    assert client.get(url, {"app": "shop"}).json() == {"counter": 4, "node_offset": 0}
    assert problem(client.get(url)) == (404, "not_exist")
    post(client, "/api/ids/rules/order/ids/", {})
    assert client.get(url).json() == client.get(url, {"app": ""}).json() == {"counter": 0, "node_offset": 0}
    assert problem(client.get("/api/ids/rules/nope/counters/")) == (404, "unknown_rule")
    assert problem(client.get(url + "?app=%00")) == (400, "bad_request")
    assert problem(client.get(url + "?app=%ff%fe")) == (404, "not_exist")


def test_counters_page_by_page(client: APIClient, rule: IdRule) -> None:
    make_rule("other")
    for name in ("order", "other"):
        for app in ("a", "b", ""):
            post(client, f"/api/ids/rules/{name}/ids/", {"app": app})
    first = client.get("/api/ids/counters/", {"page_size": 4}).json()
    assert (first["count"], len(first["results"]), first["previous"]) == (6, 4, None)
    second = client.get(first["next"]).json()
    counters = [(row["rule"], row["app_name"]) for row in first["results"] + second["results"]]
    assert sorted(counters) == sorted((name, app) for name in ("order", "other") for app in ("a", "b", ""))
    assert first["results"][0]["bound"] == 1000
    for query, count in (
        ({"rule": "other"}, 3),
        ({"app": "a"}, 2),
        ({"app": ""}, 2),
        ({"rule": "order", "app": "b"}, 1),
    ):
        assert client.get("/api/ids/counters/", query).json()["count"] == count
    assert problem(client.get("/api/ids/counters/?rule=%00")) == (400, "bad_request")
    for page in ("3", "0", "x", "9" * 400):
        assert problem(client.get("/api/ids/counters/", {"page": page, "page_size": 4})) == (404, "not_found")


# --- rules ---------------------------------------------------------------------------------------------------------


def test_a_rule_is_created_changed_and_deleted(client: APIClient) -> None:
    created = post(client, "/api/ids/rules/", {**NEW, "description": "Numbers"})
    assert created.status_code == 201
    body = created.json()
    assert created["Location"] == body["url"] == "http://testserver/api/ids/rules/new/"
    assert (body["kind"], body["max_counter"], body["version"], body["enabled"]) == ("template", 9, 1, True)
    assert "scramble_key" not in body
    assert client.get(body["url"]).json() == body
    assert client.get("/api/ids/rules/").json()["results"] == [body]
    changed = client.patch(body["url"], {"description": "More", "max_counter": 99}, format="json").json()
    assert (changed["description"], changed["max_counter"], changed["version"]) == ("More", 99, 2)
    replaced = client.put(body["url"], NEW, format="json").json()
    assert (replaced["max_counter"], replaced["version"]) == (9, 3)
    assert client.delete(body["url"]).status_code == 204
    assert problem(client.get(body["url"])) == (404, "unknown_rule")
    assert problem(client.delete(body["url"])) == (404, "unknown_rule")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_rules_with_unusual_names_have_urls(client: APIClient, name: str) -> None:
    url = post(client, "/api/ids/rules/", {**NEW, "name": name}).json()["url"]
    assert url.endswith(reverse("resty_ids_api:rule", kwargs={"name": name}))
    by_hand = f"/api/ids/rules/{quote(quote(name, safe=''), safe='')}/"
    for address in {url, by_hand} if name not in (".", "..") else {url}:
        assert client.get(address).json()["name"] == name
        assert post(client, address + "ids/", {}).status_code == 200
        assert client.get(address + "counters/").status_code == 200
        assert post(client, address + "preview/", {}).status_code == 200
    assert client.patch(url, {"description": "x"}, format="json").status_code == 200
    assert client.delete(url + "?confirm_risks=true").status_code == 204


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"source": "{nope}"}, "bad_rule", "source"),
        ({"source": ""}, "bad_request", "source"),
        ({"source": "\ud800{counter:06d}"}, "bad_request", "source"),
        ({"source": "\x00"}, "bad_request", "source"),
        ({"kind": "\ud800"}, "bad_request", "kind"),
        ({"kind": "perl"}, "bad_request", "kind"),
        ({"name": "a b"}, "bad_rule", "name"),
        ({"name": None}, "bad_request", "name"),
        ({"max_counter": 10**30}, "bad_request", "max_counter"),
        ({"max_counter": 2**63 - 1}, "bad_rule", None),
        ({"reset_seconds": 86_400}, "bad_rule", None),
        ({"reset_seconds": 86_400, "reset_calendar": "month"}, "bad_rule", "reset_calendar"),
        ({"reset_calendar": "decade"}, "bad_request", "reset_calendar"),
        ({"enabled": "yes"}, "bad_request", "enabled"),
        ({"scramble_key": "00"}, "bad_request", "scramble_key"),
        ({"confirm_risks": "true"}, "bad_request", "confirm_risks"),
    ],
)
def test_an_invalid_rule_is_refused(client: APIClient, fields: dict[str, Any], code: str, field: str | None) -> None:
    body = json.dumps({**NEW, "max_counter": 999_999, **fields})
    response = client.generic("POST", "/api/ids/rules/", body, content_type="application/json")
    assert problem(response) == (400, code)
    if field is not None:
        assert field in response.json()["details"]["fields"]
    assert not IdRule.objects.exists()


def test_a_mistake_in_the_source_is_pointed_at(client: APIClient) -> None:
    body = post(client, "/api/ids/rules/", {**NEW, "source": "N{counter:06d}{nope}"}).json()
    assert body["code"] == "bad_rule"
    assert body["details"]["position"] == 14
    assert body["details"]["fields"]["source"][0].startswith("At character 15")


def test_a_name_is_taken_once(client: APIClient, rule: IdRule) -> None:
    response = post(client, "/api/ids/rules/", {**NEW, "name": "order"})
    assert problem(response) == (400, "bad_rule")
    assert response.json()["details"]["fields"] == {"name": ["A rule named order already exists."]}
    make_rule("second")
    response = client.patch("/api/ids/rules/second/", {"name": "order"}, format="json")
    assert problem(response) == (400, "bad_rule")


def test_a_risky_change_must_be_confirmed(client: APIClient, rule: IdRule) -> None:
    url = "/api/ids/rules/order/"
    assert client.patch(url, {"source": "P{counter:06d}"}, format="json").status_code == 200
    post(client, url + "ids/", {})
    response = client.patch(url, {"source": "Q{counter:06d}"}, format="json")
    assert problem(response) == (409, "risks_unconfirmed")
    assert response.json()["details"]["risks"][0].startswith("The text of IDs changes")
    assert client.get(url).json()["source"] == "P{counter:06d}"
    assert client.patch(url, {"max_counter": 9999}, format="json").status_code == 200
    body = {"source": "Q{counter:06d}", "confirm_risks": True}
    assert client.patch(url, body, format="json").json()["source"] == "Q{counter:06d}"
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if post(client, url + "ids/", {}).json()["ids"][0].startswith("Q"):
            break
    else:
        pytest.fail("the changed rule did not take effect")


def test_a_rule_in_use_is_deleted_only_when_that_is_confirmed(client: APIClient, rule: IdRule) -> None:
    post(client, "/api/ids/rules/order/ids/", {})
    for query in ("", "?confirm_risks=false", "?confirm_risks=1"):
        assert problem(client.delete("/api/ids/rules/order/" + query)) == (409, "risks_unconfirmed")
    assert client.delete("/api/ids/rules/order/?confirm_risks=true").status_code == 204
    assert not IdCounter.objects.exists()


def test_lua_rules_need_their_own_permission(client: APIClient) -> None:
    pytest.importorskip("lupa")
    body = {**NEW, "kind": "lua", "source": LUA, "max_counter": 999}
    assert problem(post(client, "/api/ids/rules/", body)) == (403, "permission_denied")
    writer = client_with(*ALL, "change_lua_rule")
    assert post(writer, "/api/ids/rules/", body).status_code == 201
    url = "/api/ids/rules/new/"
    assert post(client, url + "ids/", {}).json()["ids"] == ["L000"]
    assert problem(client.patch(url, {"description": "x"}, format="json")) == (403, "permission_denied")
    assert problem(client.patch(url, {"kind": "template", "source": "x{counter:03d}"}, format="json"))[0] == 403
    assert problem(post(client, url + "preview/", {"draft": {"source": LUA}})) == (403, "permission_denied")
    assert post(client, url + "preview/", {"count": 2}).status_code == 200
    assert writer.patch(url, {"description": "x"}, format="json").status_code == 200
    bad = post(writer, "/api/ids/rules/", {**body, "name": "bad", "source": LUA + "\nfunction ("}).json()
    assert bad["code"] == "bad_rule"
    assert bad["details"]["position"] > 0


def test_python_rules_need_their_own_permission(client: APIClient, settings: Any, monkeypatch: Any) -> None:
    import types

    module = types.ModuleType("resty_test_rules")
    module.Always = Always  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "resty_test_rules", module)
    settings.RESTY_DJANGO = {"IDS": {"PYTHON_RULES": [PYTHON]}}
    body = {**NEW, "kind": "python", "source": PYTHON, "max_counter": 999}
    assert problem(post(client, "/api/ids/rules/", body)) == (403, "permission_denied")
    writer = client_with(*ALL, "change_python_rule")
    assert post(writer, "/api/ids/rules/", body).status_code == 201
    assert post(writer, "/api/ids/rules/new/preview/", {"count": 2}).json()["ids"] == ["P000", "P001"]
    assert problem(post(writer, "/api/ids/rules/", {**body, "name": "two", "source": "os.system"})) == (400, "bad_rule")


# --- preview -------------------------------------------------------------------------------------------------------


def test_a_preview_consumes_nothing(client: APIClient, rule: IdRule) -> None:
    url = "/api/ids/rules/order/"
    preview = post(client, url + "preview/", {"app": "shop"}).json()
    assert (preview["ids"], preview["error"]) == (["O000000", "O000001", "O000002"], "")
    assert "1,000,000 numbers in total, because the rule never resets." in preview["notes"]
    assert not IdCounter.objects.exists()
    assert post(client, url + "ids/", {"app": "shop", "count": 3}).json()["ids"] == preview["ids"]
    service.stop()
    before = IdCounter.objects.values().get()
    assert post(client, url + "preview/", {"app": "shop", "count": 1}).json()["ids"] == ["O000003"]
    assert post(client, url + "preview/", {"app": "", "count": 1}).json()["ids"] == ["O000000"]
    assert IdCounter.objects.values().get() == before


def test_a_preview_of_changes_that_are_not_saved(client: APIClient, rule: IdRule) -> None:
    url = "/api/ids/rules/order/preview/"
    reply = post(client, url, {"count": 2, "draft": {"source": "X{counter:02d}", "min_counter": 5, "max_counter": 99}})
    assert reply.json()["ids"] == ["X05", "X06"]
    assert IdRule.objects.get().source == "O{counter:06d}"
    reply = post(client, url, {"draft": {"source": "X{counter:1}"}})
    assert problem(reply) == (400, "bad_rule")
    assert reply.json()["details"]["position"] == 10
    for draft in ({"nope": 1}, {"name": "x"}, None, [], {"enabled": "x"}):
        assert problem(post(client, url, {"draft": draft})) == (400, "bad_request")
    for count in (0, 21, True, "2"):
        assert problem(post(client, url, {"count": count})) == (400, "bad_request")
    assert problem(post(client, url, {"app": "a b"})) == (400, "bad_request")
    body = {"salt": "abc", "draft": {"source": "X{salt:2}{counter:06d}"}}
    assert problem(post(client, url, body)) == (400, "bad_request")


def test_a_preview_ends_where_the_numbers_end(client: APIClient) -> None:
    make_rule("few", source="F{counter:01d}", max_counter=2)
    assert post(client, "/api/ids/rules/few/preview/", {"count": 20}).json()["ids"] == ["F0", "F1", "F2"]
    post(client, "/api/ids/rules/few/ids/", {"count": 3})
    preview = post(client, "/api/ids/rules/few/preview/", {}).json()
    assert preview["ids"] == []
    assert "has given out all its numbers" in preview["error"]


# --- the schema ----------------------------------------------------------------------------------------------------


def test_the_openapi_schema_is_made_without_a_warning(tmp_path: Any) -> None:
    path = tmp_path / "schema.json"
    call_command("spectacular", "--validate", "--fail-on-warn", "--format=openapi-json", f"--file={path}")
    schema = json.loads(path.read_text())
    operations = {
        (path_, method): operation
        for path_, methods in schema["paths"].items()
        if path_.startswith("/api/ids/")
        for method, operation in methods.items()
    }
    for key, operation in operations.items():
        assert operation["summary"], key
        for status in ("4XX", "5XX"):
            (error,) = operation["responses"][status]["content"].values()
            assert error["schema"]["$ref"].endswith("/Error"), key
    rule = "/api/ids/rules/{name}/"
    assert set(operations[f"{rule}ids/", "post"]["responses"]) == {"200", "4XX", "5XX"}
    assert [parameter["name"] for parameter in operations[rule, "delete"]["parameters"]] == [
        *("If-Match", "confirm_risks", "name")
    ]
    assert "204" in operations[rule, "delete"]["responses"]


BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("post", "/api/ids/rules/order/ids/", {}),
    ("post", "/api/ids/rules/order/preview/", {}),
    ("post", "/api/ids/rules/", {"name": "new", "source": "{counter}"}),
    ("put", "/api/ids/rules/order/", {"name": "order", "source": "O{counter:06d}", "confirm_risks": True}),
    ("patch", "/api/ids/rules/order/", {"confirm_risks": True}),
]
EDGES: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "minimum": lambda bound: (bound, bound - 1),
    "maximum": lambda bound: (bound, bound + 1),
    "minLength": lambda bound: ("x" * bound, "x" * (bound - 1)),
    "maxLength": lambda bound: ("x" * bound, "x" * (bound + 1)),
}
"""The last value that a keyword allows, and the first that it forbids."""


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("schema") / "schema.json"
    call_command("spectacular", "--format=openapi-json", f"--file={path}")
    return json.loads(path.read_text())


@pytest.mark.parametrize(("method", "url", "body"), BODIES)
def test_the_api_refuses_what_the_schema_forbids(
    schema: Any, client: APIClient, rule: IdRule, method: str, url: str, body: dict[str, Any]
) -> None:
    operation = schema["paths"][url.replace("/order/", "/{name}/")][method]
    content = operation["requestBody"]["content"]["application/json"]["schema"]
    described = schema["components"]["schemas"][content["$ref"].rpartition("/")[2]]
    assert described["additionalProperties"] is False

    def status(**fields: Any) -> int:
        with transaction.atomic():
            code: int = getattr(client, method)(url, {**body, **fields}, format="json").status_code
            transaction.set_rollback(True)
        return code

    assert status(nosuchfield=1) == 400
    bounds = 0
    for name, field in described["properties"].items():
        if field.get("readOnly"):
            continue
        assert status(**{name: {"an": "object"}}) == 400, name
        for keyword, edges in EDGES.items():
            if keyword in field:
                bounds += 1
                _, forbidden = edges(field[keyword])
                assert status(**{name: forbidden}) == 400, (name, keyword)
        if field["type"] == "integer" if isinstance(field.get("type"), str) else False:
            for value in ("1", 1.5, True):
                assert status(**{name: value}) == 400, name
    assert bounds


@pytest.mark.parametrize(
    ("name", "low", "high"), [("segment_size", 1, None), ("salt_length", 0, 32), ("min_counter", 0, None)]
)
def test_the_schema_has_the_bounds_of_the_rule(schema: Any, name: str, low: int, high: int | None) -> None:
    for component in ("IdRule", "PatchedIdRule", "IdRuleDraft"):
        if component in schema["components"]["schemas"]:
            field = schema["components"]["schemas"][component]["properties"][name]
            assert field["minimum"] == low
            assert high is None or field["maximum"] == high


class SiteSchema(AutoSchema):
    pass


@pytest.mark.parametrize(
    ("path", "kind"),
    [(f"{__name__}.SiteSchema", SiteSchema), ("rest_framework.schemas.openapi.AutoSchema", DefaultSchema)],
)
def test_views_keep_the_schema_class_of_the_site(settings: Any, path: str, kind: type) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_SCHEMA_CLASS": path}
    assert isinstance(view_schema(), kind)


def test_the_api_works_without_drf_spectacular() -> None:
    code = """
import sys
sys.modules["drf_spectacular"] = None
from django.conf import settings
settings.configure(
    SECRET_KEY="x" * 50, ALLOWED_HOSTS=["*"], USE_TZ=True, ROOT_URLCONF="resty_django.ids.api.urls",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "rest_framework", "resty_django",
                    "resty_django.ids"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    RESTY_DJANGO={"EVENTS": {"AUTOSTART": False}},
)
import django
django.setup()
from rest_framework.test import APIClient
assert APIClient().get("/rules/").json()["code"] == "not_authenticated"
"""
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


@override_settings(APPEND_SLASH=True, DEBUG=True)
def test_an_address_without_its_slash_is_an_error_also_while_debugging(client: APIClient, rule: IdRule) -> None:
    assert problem(post(client, "/api/ids/rules/order/ids", {})) == (404, "not_found")


def test_a_full_disk_is_named(make_rule: Any, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    make_rule()
    settings.RESTY_DJANGO = {"IDS": {"NEW_NAMES_PER_SECOND": 0, "WAIT": 10}}
    limit = "PRAGMA journal_mode = WAL; PRAGMA max_page_count = 1"  # SQLite raises 1 to the present number
    options = {**connection.settings_dict["OPTIONS"], "init_command": limit}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    with pytest.raises(Unavailable, match="disk"):
        [next_id("order", f"a-long-name-of-an-application-{n}") for n in range(5000)]
