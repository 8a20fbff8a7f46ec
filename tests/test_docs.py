"""The documentation is correct: its code runs, its links have targets, and its examples show the real results.

IDs are compared exactly, with a clock that stands at the time of the examples (21 November 2026, 14:05:09).
"""

from __future__ import annotations

import ast
import base64
import importlib
import inspect
import json
import re
import shlex
import socket
import sys
import types
import unittest
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from rest_framework.authtoken.models import Token

from resty_django.checks import check_caches
from resty_django.conf import SECTIONS, all_problems, conf
from resty_django.conf.schema import page_of
from resty_django.ids import errors
from resty_django.ids import service as services
from resty_django.ids.engine.cycle import DAY_SECONDS, WEEK_SECONDS, Reset
from resty_django.ids.engine.rule import RuleSpec, compile_rule
from resty_django.ids.engine.wall_clock import wall_at
from resty_django.ids.models import RULE_FIELDS, IdRule
from resty_django.ids.udp.server import UdpServer, bind
from resty_django.ids.udp.signing import verify
from resty_django.limits.quotas import registry
from tests.docs_reader import ROOT, Page, code, execute, page, pages
from tests.threads import serving

NOW = datetime(2026, 11, 21, 14, 5, 9, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
RESETS = {
    "never": Reset(),
    "hour": Reset(3600),
    "day": Reset(DAY_SECONDS),
    "week": Reset(WEEK_SECONDS),
    "month": Reset(0, "month"),
    "year": Reset(0, "year"),
}
PAGES = pytest.mark.parametrize("doc_page", pages(), ids=lambda doc_page: doc_page.name)


def shape(text: str) -> str:
    """A text with its digits and capital letters made alike."""
    return re.sub("[A-Z0-9]", "0", text)


# --- links -------------------------------------------------------------------------------------------------------


@PAGES
def test_links_and_pictures_lead_somewhere(doc_page: Page) -> None:
    anchors = {linked_page.name: linked_page.anchors for linked_page in pages()}
    for link in doc_page.links:
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (ROOT / doc_page.path).parent / path if path else ROOT / doc_page.path
        assert target.exists(), f"{doc_page.name} links to {link}, which does not exist"
        if fragment:
            name = str(target.resolve().relative_to(ROOT))
            assert fragment in anchors[name], f"{doc_page.name} links to {link}; {name} has no such heading"


@PAGES
def test_pictures_are_written_in_markdown(doc_page: Page) -> None:
    """Neither the test of links nor the site finds pictures in HTML."""
    assert "<img" not in doc_page.prose


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        for link in page(name).links:
            path = link.partition("#")[0]
            if path.endswith(".md") and "://" not in path:
                target = str(((ROOT / name).parent / path).resolve().relative_to(ROOT))
                if target not in reached:
                    waiting.append(target)
    assert reached == {doc_page.name for doc_page in pages() if not doc_page.text.startswith(":::{include}")}


def test_targets_of_hints_in_checks_exist() -> None:
    for entry in SECTIONS.values():
        for path in [(entry.key,), *entry.paths()]:
            name, _, fragment = page_of(path).partition("#")
            assert fragment in page(name).anchors


# --- code that runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def frozen(
    transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[services.IdService]:
    """The demo's rules and user, empty shared dictionaries, and a service whose clock stands still."""
    dicts = {name: {"PATH": tmp_path} for name in ("default", "bans", "events", "limits")}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": dicts}
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    call_command("demo_data", verbosity=0)
    monkeypatch.setattr(registry, "_quotas", {})  # quotas of the demo and of other pages
    services.stop()
    service = services.IdService(lambda: NOW)
    monkeypatch.setattr(services, "_service", service)
    yield service
    service.stop()


@pytest.fixture
def udp_port(frozen: services.IdService) -> Iterator[int]:
    """The port of a UDP server with that service."""
    sock = bind("127.0.0.1", 0)
    port = int(sock.getsockname()[1])
    server = UdpServer(sock, frozen)
    with serving(server):
        yield port


RUN_ELSEWHERE = (
    "README.md",
    "docs/explanation/privacy.md",
    *(f"docs/reference/jobs/{name}.md" for name in ("client", "outbox", "tasks", "testing")),
)
WITH_CODE = [
    doc_page
    for doc_page in pages()
    # Run elsewhere: tutorial/ from the wheel (tests/wheel/test_tutorial.py), howto/ on new sites (test_docs_howto.py),
    # coming-from/ as projects (tests/integration/test_coming_from.py, ..._more.py), only/ from the wheel
    # (tests/wheel/test_only.py).
    if doc_page.name not in RUN_ELSEWHERE
    and doc_page.path.parent.name not in ("tutorial", "howto", "coming-from", "only")
    and any(block.language == "python" for block in doc_page.blocks)
]


@pytest.mark.parametrize("doc_page", WITH_CODE, ids=lambda doc_page: doc_page.name)
def test_python_blocks_run_with_the_results_that_they_show(
    doc_page: Page,
    frozen: services.IdService,
    udp_port: int,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    tmp_path: Path,
) -> None:
    if "127.0.0.1:1200" in doc_page.text:
        frozen.load()
    module = types.ModuleType("docs")
    monkeypatch.setitem(sys.modules, "docs", module)
    namespace = vars(module)
    namespace |= {"INSTALLED_APPS": ["django.contrib.admin"], "next_id": services.next_id}
    checked = 0
    for block in doc_page.blocks:
        if block.language != "python":
            continue
        before = dict(namespace)
        checked += execute(block.text.replace("127.0.0.1:1200", f"127.0.0.1:{udp_port}"), block.place, namespace)
        new = {name: value for name, value in namespace.items() if before.get(name) is not value}
        check_settings_of(new, namespace, monkeypatch)
        use_caches_of(new, settings, tmp_path)
        run_test_cases_of(new)
    if "next_id(" in doc_page.text and doc_page.name != "docs/explanation/architecture.md":
        assert checked, f"no value is shown in {doc_page.name}"


def check_settings_of(new: dict[str, Any], page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that shows settings shows right ones, and no cache whose `clear()` deletes jobs or dictionaries."""
    for name in new.get("INSTALLED_APPS", ()):
        importlib.import_module(name)
    if {"RESTY_DJANGO", "CACHES"} & set(new):
        redis = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://10.0.0.5:6379/1"}
        with monkeypatch.context() as patch:
            patch.setitem(django_settings.DATABASES, "ids", {})  # the aliases that the pages take as examples
            patch.setattr(django_settings, "CACHES", {"default": LOCMEM, "resty": redis, **page.get("CACHES", {})})
            patch.setattr(django_settings, "RESTY_DJANGO", page.get("RESTY_DJANGO", {}))
            conf.clear()
            assert all_problems() == []
            assert [message.msg for message in check_caches() if message.id == "resty_django.W006"] == []
        conf.clear()
    for options in new.get("DATABASES", {}).values():
        assert options["ENGINE"].startswith("django.db.backends.")


def use_caches_of(new: dict[str, Any], settings: Any, folder: Path) -> None:
    """The rest of a page uses our caches in its settings."""
    if any(config["BACKEND"].startswith("resty_django.") for config in new.get("CACHES", {}).values()):
        names = (*new["RESTY_DJANGO"]["SHARED_DICTS"], "events")
        settings.CACHES = new["CACHES"]
        settings.RESTY_DJANGO = {"SHARED_DICTS": {name: {"PATH": str(folder)} for name in names}}


def run_test_cases_of(new: dict[str, Any]) -> None:
    """Test cases in a block pass."""
    for value in new.values():
        if inspect.isclass(value) and issubclass(value, unittest.TestCase) and value.__module__ == "docs":
            suite = unittest.defaultTestLoader.loadTestsFromTestCase(value)
            result = unittest.TestResult()
            suite.run(result)
            assert result.testsRun
            assert result.wasSuccessful(), result.failures + result.errors


def test_requests_of_the_protocol_page_get_the_replies_that_it_shows(frozen: services.IdService, udp_port: int) -> None:
    frozen.load()
    examples = [block for block in page("docs/reference/ids/protocol.md").blocks if block.language == "json"]
    assert len(examples) >= 8
    assert len(examples) % 2 == 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.connect(("127.0.0.1", udp_port))
        for request, reply in zip(examples[::2], examples[1::2], strict=True):
            sock.send(request.text.strip().encode())
            assert sock.recv(65535).decode() == reply.text.strip(), request.place


def test_the_signed_datagram_of_the_protocol_page_is_one() -> None:
    (block,) = (block for block in page("docs/reference/ids/protocol.md").blocks if "hmac.digest" in block.text)
    namespace: dict[str, Any] = {}
    execute(block.text, block.place, namespace)
    verified = verify(namespace["datagram"], [namespace["KEY"].encode()])
    assert verified is not None
    assert {"time", "nonce"} <= set(json.loads(verified[0]))


def test_curl_commands_of_the_http_page_get_the_answers_that_it_shows(frozen: services.IdService) -> None:
    answer: Any = None
    count = 0
    for block in page("docs/reference/ids/api.md").blocks:
        if block.language == "console":
            for command in block.commands:
                answer = ask_http(command)
        elif block.language == "json":
            count += 1
            assert answer == json.loads(block.text), block.place
    assert count >= 5


def ask_http(command: str) -> Any:
    """The JSON that a curl command gets from the demo site."""
    program, *arguments = shlex.split(command)
    assert program == "curl"
    method, body, headers, url = "", "", {}, ""
    while arguments:
        word = arguments.pop(0)
        if word == "-u":
            headers["Authorization"] = "Basic " + base64.b64encode(arguments.pop(0).encode()).decode()
        elif word == "-H":
            name, value = arguments.pop(0).split(": ")
            if "$TOKEN" in value:
                token, _ = Token.objects.get_or_create(user=get_user_model().objects.get(username="admin"))
                value = value.replace("$TOKEN", token.key)
            headers[name] = value
        elif word == "-d":
            body, method = arguments.pop(0), method or "POST"
        elif word == "-X":
            method = arguments.pop(0)
        else:
            assert not url
            url = word
    path = url.removeprefix("http://127.0.0.1:8000")
    content_type = headers.pop("Content-Type", "application/json")
    response = Client().generic(method or "GET", path, body, content_type=content_type, headers=headers)
    return response.json()


# --- rules -------------------------------------------------------------------------------------------------------


def rule_of(source: str, numbers: str, reset: str) -> RuleSpec:
    low, high = (int(number) for number in numbers.split(" to "))
    return RuleSpec(
        name="order",
        source=source,
        min_counter=low,
        max_counter=high,
        reset=RESETS[reset],
        timezone="Europe/Berlin",
        node="b1",
        scramble_key=bytes(range(16)),
    )


def written(spec: RuleSpec, number: int = 42) -> str:
    return compile_rule(spec).shape(wall_at(NOW, spec.zone), "shop").render(number, "77")


def test_examples_of_rules_make_the_ids_that_they_show() -> None:
    rows = page("docs/reference/ids/rules.md").table("template", "range", "reset", "ID")
    assert len(rows) >= 10
    for source, numbers, reset, example in rows:
        new_id = written(rule_of(code(source), numbers, reset))
        if "random" in example:
            assert shape(new_id) == shape(code(example)), source
        else:
            assert new_id == code(example), source


def test_mistakes_in_rules_have_the_messages_that_are_shown() -> None:
    rows = page("docs/reference/ids/rules.md").table("template, range, reset", "message")
    assert len(rows) >= 6
    for cell, message in rows:
        _, source, suffix = cell.split("`")
        numbers, reset = suffix.removeprefix(", ").split(", ")
        with pytest.raises(errors.BadRule) as caught:
            compile_rule(rule_of(source, numbers, reset))
        assert str(caught.value) == message, source


def test_directives_write_what_is_shown() -> None:
    from resty_django.ids.engine import strftime

    rows = page("docs/reference/ids/rules.md").table("directive", "output", "example")
    assert [code(row[0]) for row in rows] == strftime.KNOWN_DIRECTIVES.split()
    for directive, _, example in rows:
        assert written(rule_of(f"{{now:{code(directive)}}}{{counter}}", "0 to 99", "never")) == code(example) + "42"


def test_every_template_field_and_every_field_of_a_rule_is_documented() -> None:
    from resty_django.ids.engine import template

    rules = page("docs/reference/ids/rules.md")
    documented = " ".join(row[0] for row in rules.table("field", "output"))
    for name in template.TEMPLATE_FIELDS.split(", "):
        assert re.search(rf"`{{{name}[:}}]", documented), name
    rows = rules.table("field", "default", "meaning")
    assert {code(row[0]) for row in rows} == set(RULE_FIELDS)
    for name, default, _ in rows:
        if "`" in default:
            assert getattr(IdRule._meta.get_field(code(name)), "default", None) == ast.literal_eval(code(default)), name
