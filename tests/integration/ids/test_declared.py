"""Rules that the settings declare."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db.models.signals import post_migrate
from django.test import Client

from resty_django.ids import next_id, next_ids, service
from resty_django.ids.declared import check_rules
from resty_django.ids.errors import UnknownRule
from resty_django.ids.models import IdCounter, IdRule

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

RULE = {"name": "ticket", "source": "T{counter:06d}", "min_counter": 1}


def declare(settings: Any, *rules: dict[str, Any], **ids: Any) -> None:
    service.stop()
    settings.RESTY_DJANGO = {"IDS": {"RULES": list(rules), **ids}}


def migrated() -> None:
    """Send the signal that `migrate` sends at its end."""
    config = apps.get_app_config("resty_ids")
    migrated = {"app_config": config, "interactive": False, "plan": []}
    post_migrate.send(sender=config, using="default", apps=apps, verbosity=0, **migrated)


def test_a_declared_rule_needs_no_migration(settings: Any) -> None:
    declare(settings, RULE)
    assert next_id("ticket") == "T000001"
    declare(settings, {**RULE, "source": "U{counter:06d}", "min_counter": 10})
    assert next_id("ticket") == "U000010"
    rule = IdRule.objects.get()
    assert (rule.anchor, rule.min_counter, rule.version) == (1, 10, 2)
    declare(settings)
    assert next_id("ticket").startswith("U")  # an ordinary rule now


def test_migrate_writes_declared_rules(settings: Any) -> None:
    declare(settings, RULE, {**RULE, "name": "wrong", "source": "{nope}"})
    migrated()
    assert list(IdRule.objects.values_list("name", "version")) == [("ticket", 1)]
    key = IdRule.objects.get().scramble_key
    migrated()
    assert (IdRule.objects.get().version, IdRule.objects.get().scramble_key) == (1, key)


def test_a_declared_rule_that_was_deleted_comes_back(settings: Any) -> None:
    declare(settings, RULE, REFRESH=0.05)
    next_id("ticket")
    IdRule.objects.all().delete()
    service.service().refresh_now()
    assert next_id("ticket")
    assert IdCounter.objects.count() == 1


def test_manual_changes_stay_until_the_next_start(settings: Any) -> None:
    """Processes of two releases run next to each other during a roll-out: they must not fight."""
    declare(settings, RULE, REFRESH=0.05)
    next_id("ticket")
    IdRule.objects.get().save()
    IdRule.objects.update(description="of the newer release")
    for _ in range(3):
        service.service().refresh_now()
    assert IdRule.objects.get().description == "of the newer release"
    declare(settings, RULE)
    next_id("ticket")
    assert IdRule.objects.get().description == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "{nope}"}, "nope"),
        ({"sorce": "x"}, "Did you mean source?"),
        ({"source": ""}, "source is missing"),
        ({"name": ""}, "name is missing"),
        ({"min_counter": "1"}, "Set it to a whole number"),
        ({"min_counter": True}, "Set it to a whole number"),
        ({"gapless": 1}, "Set it to True or False"),
        ({"kind": "python", "source": "os.system"}, "PYTHON_RULES"),
        ({"scramble_key": "no hex"}, "hex"),
    ],
)
def test_a_wrong_rule_is_a_check_and_stops_nothing(settings: Any, change: dict[str, Any], message: str) -> None:
    declare(settings, {**RULE, **change}, {**RULE, "name": "good"})
    (error,) = check_rules()
    assert error.id == "resty_ids.E001"
    assert message in error.msg
    assert next_id("good") == "T000001"
    with pytest.raises(UnknownRule):
        next_id("ticket")


def test_two_rules_of_one_name_are_a_check(settings: Any) -> None:
    declare(settings, RULE, RULE)
    assert [error.id for error in check_rules()] == ["resty_ids.E001"]


def test_sites_that_share_numbers_need_one_scramble_key(settings: Any) -> None:
    scrambled = {**RULE, "source": "{counter:06d:scramble}"}
    declare(settings, scrambled, STEP=2)
    (error,) = check_rules()
    assert "scramble_key" in error.msg
    key = "00112233445566778899aabbccddeeff"
    issued: set[str] = set()
    for offset in (0, 1):
        declare(settings, {**scrambled, "scramble_key": key}, STEP=2, OFFSET=offset)
        assert not check_rules()
        issued.update(next_ids("ticket", 500))
    assert len(issued) == 1000


def test_a_declared_rule_is_read_only(settings: Any, admin_client: Client) -> None:
    declare(settings, RULE)
    next_id("ticket")
    rule = IdRule.objects.get()
    url = f"/admin/resty_ids/idrule/{rule.pk}/"
    page = admin_client.get(f"{url}change/").content.decode()
    assert "RULES" in page
    assert 'name="_save"' not in page
    for path in (f"{url}change/", f"{url}delete/"):
        assert admin_client.post(path, {"name": "other", "post": "yes", "confirmation": "ticket"}).status_code == 403
    for method in (admin_client.patch, admin_client.delete):
        reply = method("/api/ids/rules/ticket/?confirm_risks=true", {"enabled": False}, content_type="application/json")
        assert (reply.status_code, reply.json()["code"]) == (409, "conflict")
        assert "RULES" in reply.json()["message"]
    assert IdRule.objects.get().enabled
