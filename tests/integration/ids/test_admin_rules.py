"""The admin of rules: list, form, preview, issuing, deleting."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.urls import reverse

from resty_django import ids
from resty_django.ids import store
from resty_django.ids.models import IdCounter, IdRule
from tests.integration.ids.admin_tools import (
    COUNTERS,
    HOSTILE,
    LUA,
    RULES,
    make_counter,
    make_rule,
    person,
    rows,
    rule_data,
)
from tests.staff import logged, text_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]

PYTHON = "tests.integration.ids.test_admin_rules.Plain"
EDITORS = ("view_idrule", "add_idrule", "change_idrule", "delete_idrule")


class Plain:
    """A Python rule."""

    def create_id(self, take: Any, now: Any, salt: str) -> str:
        return f"P{take():06d}"


class Broken(Plain):
    """A Python rule that cannot be made."""

    def __init__(self) -> None:
        raise LookupError("no such thing")


def change(rule: IdRule) -> str:
    return f"{RULES}{rule.pk}/change/"


def look(client: Client, data: dict[str, Any], rule: IdRule | None = None) -> str:
    reply = client.post(reverse("admin:resty_ids_idrule_preview", query={"rule": rule.pk} if rule else None), data)
    assert reply.status_code == 200, reply.content
    return reply.content.decode()


def shown(html: str) -> list[str]:
    return re.findall(r'<li><code class="resty-id">(.*?)</code></li>', html)


def counters_of(html: str) -> list[str]:
    """The last six characters of the IDs in a preview: their counters."""
    return [text[-6:] for text in shown(html)]


# --- list ---------------------------------------------------------------------------------------------------------


def test_list_shows_an_example_and_takes_no_number(admin_client: Client) -> None:
    make_counter(make_rule("order", source="O{counter:06d}-{app}", reset_seconds=0))
    make_rule("script", kind="lua", source=LUA, max_counter=999, reset_seconds=0)
    make_rule("broken", source="nothing")
    before = rows()
    html = admin_client.get(RULES).content.decode()
    assert "O000000-app" in html
    assert "L000" in html
    assert "does not work" in html
    assert "1 / 10,000" in html
    assert rows() == before


def test_list_searches_and_filters(admin_client: Client) -> None:
    make_rule("order", description="for the shop")
    make_rule("lasting", reset_seconds=0, source="L{counter:06d}")
    make_rule("yearly", reset_seconds=0, reset_calendar="year", enabled=False)

    def found(query: str) -> set[str]:
        return {rule.name for rule in admin_client.get(f"{RULES}?{query}").context["cl"].result_list}

    assert found("q=shop") == {"order"}
    assert found("reset=never") == {"lasting"}
    assert found("reset=calendar") == {"yearly"}
    assert found("reset=seconds") == {"order"}
    assert found("enabled__exact=0") == {"yearly"}


# --- form ---------------------------------------------------------------------------------------------------------


def test_a_rule_is_added_and_works_at_once(admin_client: Client) -> None:
    reply = admin_client.post(f"{RULES}add/", rule_data())
    assert reply.status_code == 302, reply.context["errors"]
    assert str(ids.next_id("order", app="shop")).endswith("000000")
    assert logged() == ["Added."]


def test_the_history_of_a_rule_has_the_old_and_the_new_values(admin_client: Client) -> None:
    rule = make_rule("order")
    data = rule_data(name="order", description="of the <shop>", enabled="")
    admin_client.post(change(rule), {**data, "confirm_risks": "on"})
    assert "Description: empty → of the &lt;shop&gt; and Enabled: True → False." in text_of(
        admin_client, f"{RULES}{rule.pk}/history/"
    )


def test_a_bad_rule_is_not_saved_and_the_place_is_marked(admin_client: Client) -> None:
    reply = admin_client.post(f"{RULES}add/", rule_data(source="O{countr:06d}"))
    assert reply.status_code == 200
    html = reply.content.decode()
    assert "At character 2" in html
    assert "O<mark>{</mark>countr:06d}" in html
    assert not IdRule.objects.exists()


def test_a_name_that_is_taken_is_refused(admin_client: Client) -> None:
    make_rule()
    reply = admin_client.post(f"{RULES}add/", rule_data())
    assert "A rule with this name already exists." in reply.content.decode()
    assert IdRule.objects.count() == 1


def test_the_preview_button_shows_ids_and_saves_nothing(admin_client: Client) -> None:
    reply = admin_client.post(f"{RULES}add/", rule_data(_preview="1"))
    html = reply.content.decode()
    assert reply.status_code == 200
    assert counters_of(html) == [f"{n:06d}" for n in range(5)]
    assert "errornote" not in html
    rule = make_rule()
    reply = admin_client.post(change(rule), rule_data(rule, source="X{now:%Y%j}{counter:06d}", _preview="1"))
    assert shown(reply.content.decode())[0].startswith("X")
    assert IdRule.objects.get().source == rule.source


def test_a_risky_edit_takes_a_second_submit_with_the_box(admin_client: Client) -> None:
    rule = make_rule()
    make_counter(rule)
    data = rule_data(rule, source="X{now:%y%m%d}{counter:06d}")
    reply = admin_client.post(change(rule), data)
    html = reply.content.decode()
    assert "no new ID can equal an earlier one" in html
    assert 'name="confirm_risks"' in html
    assert IdRule.objects.get().source == rule.source
    assert admin_client.post(change(rule), data | {"confirm_risks": "on"}).status_code == 302
    assert IdRule.objects.get().source == data["source"]


def test_line_ends_of_the_browser_do_not_change_a_script(admin_client: Client) -> None:
    rule = make_rule(kind="lua", source=LUA, max_counter=999, reset_seconds=0)
    make_counter(rule)
    data = rule_data(rule, source=LUA.replace("\n", "\r\n"), reset_seconds=0, description="new")
    assert admin_client.post(change(rule), data).status_code == 302
    assert IdRule.objects.get().source == LUA
    assert IdRule.objects.get().description == "new"


def test_an_edit_without_risk_shows_no_box(admin_client: Client) -> None:
    rule = make_rule()
    assert 'name="confirm_risks"' not in admin_client.get(change(rule)).content.decode()
    assert admin_client.post(change(rule), rule_data(rule, source="X{now:%y%m%d}{counter:06d}")).status_code == 302
    make_counter(IdRule.objects.get())
    data = rule_data(IdRule.objects.get(), description="another", source="X{now:%y%m%d}{counter:06d}")
    assert admin_client.post(change(rule), data).status_code == 302
    assert IdRule.objects.get().description == "another"


# --- who may write what ---------------------------------------------------------------------------------------------


def test_lua_requires_its_own_permission_to_add_change_and_preview() -> None:
    editor, writer = person(*EDITORS), person(*EDITORS, "change_lua_rule")
    data = rule_data(kind="lua", source=LUA, max_counter=999, reset_seconds=0)
    assert "do not have permission" in editor.post(f"{RULES}add/", data).content.decode()
    html = look(editor, data)
    assert "do not have permission" in html
    assert shown(html) == []
    assert shown(look(writer, data))[0] == "L000"
    assert writer.post(f"{RULES}add/", data).status_code == 302
    rule = IdRule.objects.get()
    edited = data | {"source": LUA.replace("L%", "M%"), "description": "new", "salt_length": "3"}
    assert editor.post(change(rule), edited).status_code == 302
    rule.refresh_from_db()
    assert (rule.description, rule.source, rule.salt_length) == ("new", data["source"], None)
    assert shown(look(editor, edited, rule))[0] == "L000"
    assert writer.post(change(rule), edited).status_code == 302
    rule.refresh_from_db()
    assert "M%" in rule.source


def test_a_template_is_not_turned_into_a_script_without_the_permission() -> None:
    rule = make_rule()
    data = rule_data(rule, kind="lua", source=LUA, max_counter=999)
    assert "do not have permission" in person(*EDITORS).post(change(rule), data).content.decode()
    assert IdRule.objects.get().kind == "template"


@override_settings(RESTY_DJANGO={"IDS": {"PYTHON_RULES": [PYTHON]}})
def test_python_requires_its_own_permission() -> None:
    data = rule_data(kind="python", source=PYTHON, reset_seconds=0)
    assert "do not have permission" in person(*EDITORS, "change_lua_rule").post(f"{RULES}add/", data).content.decode()
    allowed = person(*EDITORS, "change_python_rule")
    assert shown(look(allowed, data))[0] == "P000000"
    assert allowed.post(f"{RULES}add/", data).status_code == 302


@override_settings(RESTY_DJANGO={"IDS": {"PYTHON_RULES": [PYTHON.replace("Plain", "Broken")]}})
def test_a_broken_python_rule_breaks_no_page(admin_client: Client) -> None:
    rule = make_rule(kind="python", source=PYTHON.replace("Plain", "Broken"), reset_seconds=0)
    counter = make_counter(rule)
    for url in (RULES, change(rule), COUNTERS, f"{COUNTERS}{counter.pk}/change/"):
        assert admin_client.get(url).status_code == 200, url
    assert "no such thing" in admin_client.get(change(rule)).content.decode()
    sent = rule_data(rule, reset_seconds=0)
    assert admin_client.post(change(rule), sent).status_code == 200
    assert "no such thing" in look(admin_client, sent, rule)
    assert "Not done" in admin_client.post(f"{RULES}{rule.pk}/issue/", {"app": "", "salt": ""}).content.decode()


def test_only_listed_python_classes_can_be_chosen(admin_client: Client) -> None:
    html = look(admin_client, rule_data(kind="python", source="os.system", reset_seconds=0))
    assert "PYTHON_RULES" in html
    assert shown(html) == []


# --- preview ------------------------------------------------------------------------------------------------------


def test_preview_takes_no_number_and_writes_nothing(admin_client: Client) -> None:
    rule = make_rule()
    counter = make_counter(rule, bound=100)
    before = rows()
    data = rule_data(rule)
    with mock.patch.object(store.CounterStore, "reserve", side_effect=AssertionError("the store was asked")):
        assert counters_of(look(admin_client, data, rule)) == ["000000", "000001", "000002", "000003", "000004"]
        at_counter = look(admin_client, data | {"sample-counter": str(counter.pk)}, rule)
    assert counters_of(at_counter) == ["000100", "000101", "000102", "000103", "000104"]
    assert rows() == before
    assert logged() == []


def test_preview_shows_what_is_typed_not_what_is_stored(admin_client: Client) -> None:
    rule = make_rule()
    html = look(admin_client, rule_data(rule, source="{app}-{now:%Y%m%d}-{counter:03d}{salt:2}", max_counter=999) | {
        "sample-app": "kiosk", "sample-salt": "zz"}, rule)  # fmt: skip
    assert all(re.fullmatch(r"kiosk-\d{8}-00\dzz", text) for text in shown(html))
    assert len(shown(html)) == 5
    assert IdRule.objects.get().source == rule.source


def test_preview_generates_a_salt_and_reports_an_invalid_one(admin_client: Client) -> None:
    data = rule_data(source="{salt:4}{now:%y%m%d}{counter:06d}")
    assert shown(look(admin_client, data))[0].startswith("1234")
    assert "exactly 4" in look(admin_client, data | {"sample-salt": "toolong"})
    assert "forbidden character" in look(admin_client, data | {"sample-app": "a b"})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"source": "{now:%1Y%m%d}{counter:06d}"}, "after ten years"),
        ({"kind": "lua", "source": LUA, "max_counter": 999, "reset_seconds": 0}, "The salt may have any length"),
        ({"kind": "lua", "source": LUA, "max_counter": 500, "reset_seconds": 0}, "max_counter() is 999"),
        ({"kind": "lua", "source": LUA, "max_counter": 999}, "does not show its cycle"),
        ({"kind": "lua", "source": LUA, "max_counter": 999, "fixed_length": None}, "may differ in length"),
        ({"segment_size": 500_000}, "large part"),
        ({"gapless": "on"}, "returned if the transaction is rolled back"),
        ({}, "1,000,000 numbers each day"),
        ({}, "does not show the application name"),
    ],
)
def test_preview_warns(admin_client: Client, fields: dict[str, Any], sentence: str) -> None:
    assert sentence in look(admin_client, rule_data(**fields))


@override_settings(RESTY_DJANGO={"IDS": {"STEP": 4, "OFFSET": 3}})
def test_preview_shows_the_numbers_and_the_share_of_this_node(admin_client: Client) -> None:
    html = look(admin_client, rule_data())
    assert counters_of(html) == ["000003", "000007", "000011", "000015", "000019"]
    assert "250,000 of them are for this node (3 of 4)" in html


def test_preview_of_a_rule_in_order_warns_of_nothing(admin_client: Client) -> None:
    for fields in (
        {"source": "{app}{now:%y%m%d}{counter:06d}"},
        {"kind": "lua", "source": LUA, "max_counter": 999, "reset_seconds": 0, "salt_length": 0},
    ):
        assert "resty-warnings" not in look(admin_client, rule_data(**fields))


def test_preview_works_while_the_name_is_still_missing(admin_client: Client) -> None:
    html = look(admin_client, rule_data(name=""))
    assert len(shown(html)) == 5
    assert "Name: This field is required." in html


def test_preview_of_a_script_that_fails_or_never_ends(admin_client: Client) -> None:
    data = {"kind": "lua", "max_counter": 999, "reset_seconds": 0, "fixed_length": None}
    html = look(admin_client, rule_data(**data, source=LUA.replace("return string", "while true do end return string")))
    assert "took longer than" in html
    html = look(admin_client, rule_data(**data, source=LUA.replace("return string", "error('so') return string")))
    assert "so" in html
    assert shown(html) == []
    html = look(admin_client, rule_data(**data, source=LUA + "\n\nfunction ("))
    assert "Line 7" in html


def test_preview_is_for_those_who_may_see_rules_and_by_post_alone() -> None:
    rule = make_rule()
    url = reverse("admin:resty_ids_idrule_preview")
    assert person("view_idcounter").post(url, rule_data()).status_code == 403
    assert person("view_idrule").post(url, rule_data()).status_code == 403
    assert person("add_idrule").get(url).status_code == 405
    assert Client().post(url, rule_data()).status_code == 302
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.create_superuser("root"))
    assert strict.post(url, rule_data()).status_code == 403
    viewer = person("view_idrule")
    html = look(viewer, rule_data(rule, source="X{now:%Y%m%d}{counter:06d}"), rule)
    assert shown(html)[0].startswith("O")
    assert viewer.get(change(rule)).status_code == 200


def test_preview_of_a_deleted_rule(admin_client: Client) -> None:
    assert (
        admin_client.post(reverse("admin:resty_ids_idrule_preview", query={"rule": 77}), rule_data()).status_code == 404
    )
    assert (
        admin_client.post(reverse("admin:resty_ids_idrule_preview", query={"rule": "x"}), rule_data()).status_code
        == 404
    )


# --- issue --------------------------------------------------------------------------------------------------------


def test_issue_returns_an_id_and_logs_it(admin_client: Client) -> None:
    rule = make_rule()
    reply = admin_client.post(f"{RULES}{rule.pk}/issue/", {"app": "shop", "salt": ""}, follow=True)
    match = re.search(r"O\d{6}000000", reply.content.decode())
    assert match
    assert logged() == [f"Issued {match[0]} for the application name “shop”."]
    assert IdCounter.objects.get().app_name == "shop"


def test_the_steps_of_moving_from_id_server(admin_client: Client) -> None:
    """docs/coming-from/id-server.md: a script is copied, its counter set above the saved value of the old table."""
    saved = 499
    data = rule_data(name="order_id", kind="lua", source=LUA, max_counter=999, reset_seconds=0, segment_size=100)
    assert admin_client.post(f"{RULES}add/", data).status_code == 302
    rule = IdRule.objects.get()
    reply = admin_client.post(f"{RULES}{rule.pk}/issue/", {"app": "shop", "salt": ""}, follow=True)
    assert "L000" in reply.content.decode()
    counter = IdCounter.objects.get()
    assert admin_client.post(f"{COUNTERS}{counter.pk}/raise/", {"to": saved + 1}).status_code == 302
    ids.stop()  # the site is restarted
    assert ids.next_ids("order_id", 2, "shop") == ["L500", "L501"]


def test_issue_of_a_gapless_rule(admin_client: Client) -> None:
    rule = make_rule(gapless=True)
    for number in range(2):
        reply = admin_client.post(f"{RULES}{rule.pk}/issue/", {"app": "", "salt": ""}, follow=True)
        assert f"{number:06d}</code>" in reply.content.decode()

    def elsewhere(execute: Any, sql: str, *arguments: Any) -> Any:
        return execute(sql.replace("django_admin_log", "no_such_table"), *arguments)

    with connection.execute_wrapper(elsewhere):  # the number is issued and shown, so it leaves no gap
        reply = admin_client.post(f"{RULES}{rule.pk}/issue/", {"app": "", "salt": ""}, follow=True)
    assert "000002</code>" in (text := reply.content.decode())
    assert "Not recorded in the history" in text
    assert IdCounter.objects.get().bound == 3


@pytest.mark.parametrize(
    ("fields", "app", "sentence"),
    [
        ({"enabled": False}, "", "no rule"),
        ({}, "a b", "forbidden character"),
        ({"source": "{salt:3}{now:%y%m%d}{counter:06d}"}, "", "exactly 3"),
        ({"source": "no rule at all"}, "", "{counter}"),
        ({"max_names": 0}, "", "Raise its max_names"),
    ],
)
def test_issue_shows_what_the_service_refuses(
    admin_client: Client, fields: dict[str, Any], app: str, sentence: str
) -> None:
    rule = make_rule(**fields)
    reply = admin_client.post(f"{RULES}{rule.pk}/issue/", {"app": app, "salt": ""})
    assert reply.status_code == 200
    html = reply.content.decode()
    assert "Not done: " in html
    assert sentence in html
    assert logged() == []


# --- delete -------------------------------------------------------------------------------------------------------


def test_deleting_a_rule_with_counters_requires_its_name(admin_client: Client) -> None:
    rule = make_rule()
    for number in range(23):
        make_counter(rule, f"app{number}")
    url = f"{RULES}{rule.pk}/delete/"
    html = admin_client.get(url).content.decode()
    assert "issued again" in html
    assert "order/app22" in html
    assert "and 3 more" in html
    for typed in ("", "Order", "order "):
        assert "error" in admin_client.post(url, {"post": "yes", "confirmation": typed}).content.decode()
    assert IdRule.objects.exists()
    assert admin_client.post(url, {"post": "yes", "confirmation": "order"}).status_code == 302
    assert not IdRule.objects.exists()
    assert not IdCounter.objects.exists()


def test_deleting_an_unused_rule_requires_no_name(admin_client: Client) -> None:
    rule = make_rule()
    assert admin_client.post(f"{RULES}{rule.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not IdRule.objects.exists()


def test_counters_go_with_their_rule_only_for_those_who_may_delete_counters() -> None:
    rule = make_rule()
    make_counter(rule)
    url, data = f"{RULES}{rule.pk}/delete/", {"post": "yes", "confirmation": "order"}
    assert person(*EDITORS, "view_idcounter").post(url, data).status_code == 403
    assert person(*EDITORS, "delete_idcounter").post(url, data).status_code == 302


def test_rules_are_not_deleted_in_bulk(admin_client: Client) -> None:
    rule = make_rule()
    admin_client.post(RULES, {"action": "delete_selected", "_selected_action": [rule.pk], "post": "yes"})
    assert IdRule.objects.exists()


# --- hostile text ---------------------------------------------------------------------------------------------------


def test_hostile_sources_and_names_of_forms_are_text(admin_client: Client) -> None:
    rule = make_rule(HOSTILE, description=HOSTILE, source="{app}{rule}{now:%y%m%d}{counter:06d}")
    broken = make_rule("broken", source=f"{HOSTILE}{{")
    html = admin_client.get(change(broken)).content.decode()
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    data = rule_data(source="<b>{countr}</b>") | {"sample-app": HOSTILE, "sample-salt": HOSTILE, "name": HOSTILE}
    for sent in (data, data | {"source": "{app}{rule}{now:%y%m%d}{counter:06d}"}):
        assert "<b>" not in look(admin_client, sent)
        assert "<b>" not in admin_client.post(f"{RULES}add/", sent).content.decode()
    reply = admin_client.post(f"{RULES}{rule.pk}/issue/", {"app": HOSTILE, "salt": ""})
    assert "<b>" not in reply.content.decode()
