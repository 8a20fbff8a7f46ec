"""The command `limits_ban`."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from resty_django.limits import bans
from tests.servers import free_port

pytestmark = pytest.mark.usefixtures("bans_store")


def run(*args: str) -> str:
    out = StringIO()
    call_command("limits_ban", *args, stdout=out)
    return out.getvalue()


def test_a_key_is_banned_listed_and_lifted() -> None:
    assert run("list") == "No bans.\n"
    assert run("add", "192.0.2.7", "--for", "1h", "--reason", "scans").startswith(
        "Banned 192.0.2.7 by all limits until "
    )
    run("add", "user:7", "--for", "1d", "--limit", "search")
    ban = bans.find("192.0.2.7")
    assert ban is not None
    assert (ban.until - ban.since, ban.reason) == (3600, "scans")
    first, second = run("list").splitlines()
    assert first.startswith("user:7  search  until ")
    assert first.endswith("  number 1")
    assert second.endswith("  number 1  scans")
    assert run("list", "--limit", "search").splitlines() == [first]
    assert run("lift", "192.0.2.7", "--limit", "search") == "192.0.2.7 was not banned.\n"
    assert run("lift", "192.0.2.7") == "Lifted 1 ban of 192.0.2.7.\n"
    assert run("lift", "192.0.2.7") == "192.0.2.7 was not banned.\n"
    assert [ban.key for ban in bans.current_bans()] == ["user:7"]


def test_the_output_as_json() -> None:
    added = json.loads(run("add", "user:é", "--for", "90s", "--limit", "search", "--json"))
    assert {**added, "since": "", "until": ""} == {
        **{"key": "user:é", "limit": "search", "since": "", "until": "", "number": 1, "reason": ""},
    }
    assert added["since"] < added["until"]
    assert [json.loads(line) for line in run("list", "--json").splitlines()] == [added]
    assert json.loads(run("lift", "user:é", "--json")) == {"key": "user:é", "lifted": 1}
    assert run("list", "--json") == ""


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["add"], "limits_ban add needs a key"),
        (["add", ""], "limits_ban add needs a key"),
        (["lift"], "limits_ban lift needs a key"),
        (["list", "k"], "takes no key"),
        (["add", "k"], "needs --for, such as --for 1h"),
        (["add", "k", "--for", "soon"], "'soon' is not a duration"),
        (["add", "k", "--for", "0s"], "longer than 0"),
        (["add", "k", "--for", "1h", "--reason", "r" * 201], "at most 200 characters"),
        (["lift", "k", "--for", "1h"], "--for is only supported by add"),
        (["list", "--reason", "r"], "--reason is only supported by add"),
        (["ban", "k"], "invalid choice"),
    ],
)
def test_wrong_arguments(args: list[str], error: str) -> None:
    with pytest.raises(CommandError, match=error):
        run(*args)
    assert bans.current_bans() == []


def test_a_dictionary_that_is_down() -> None:
    server = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{free_port()}/0"}
    section = {"SHARED_DICTS": {"bans": {"ENGINE": "redis"}}}
    with override_settings(CACHES={"default": server}, RESTY_DJANGO=section):
        for args in (["list"], ["lift", "k"], ["add", "k", "--for", "1h"]):
            with pytest.raises(CommandError, match="The bans cannot be read or changed"):
                run(*args)
