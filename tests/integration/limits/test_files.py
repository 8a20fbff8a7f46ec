"""Policies and overrides as files: dumped files load again, mistakes name their row, and a load is all or nothing."""

from __future__ import annotations

import io
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.signals import pre_save
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from resty_django.limits.callers.exemptions import METHODS
from resty_django.limits.models import LimitOverride, LimitPolicy
from resty_django.limits.overrides.current import current
from resty_django.limits.policies import invalidation, registry
from resty_django.limits.policies.files import BadFile, dump, load
from resty_django.limits.specs.policy import PolicySpec
from tests.integration.limits.policy_tools import HOSTILE, POLICIES, breakable, make_policy, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

OVERRIDES = "/admin/resty_limits/limitoverride/"


def policy(**fields: Any) -> dict[str, Any]:
    values = {"name": "pay", "algorithm": "fixed_window", "limit": 3, "window": "1h", "key": "all", **fields}
    return {"model": "resty_limits.limitpolicy", "fields": values}


def override(**fields: Any) -> dict[str, Any]:
    return {"model": "resty_limits.limitoverride", "fields": {"kind": "user", "key": "7", "rate": "60/m", **fields}}


def make_override(**fields: Any) -> LimitOverride:
    return LimitOverride.objects.create(**{"kind": "address", "key": "192.0.2.1", "rate": "60/m", **fields})


def all_rows() -> list[LimitPolicy | LimitOverride]:
    return [*LimitPolicy.objects.all(), *LimitOverride.objects.all()]


def names() -> dict[str, int | None]:
    return {row.name: row.limit for row in LimitPolicy.objects.all()}


def run(*args: Any, **options: Any) -> str:
    output = io.StringIO()
    call_command(*map(str, args), stdout=output, **options)
    return output.getvalue()


# --- the format ----------------------------------------------------------------------------------------------------

SPECS = st.builds(
    PolicySpec,
    name=st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True),
    algorithm=st.just("leaky_bucket"),
    description=st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=50),
    rate=st.sampled_from(["1/s", "30/min", "5 per hour", "10/s burst=20;1000/h"]),
    burst=st.none() | st.floats(0, 1e9),
    exempt_networks=st.sampled_from(["", "10.0.0.0/8\n2001:db8::/32"]),
    exempt_users=st.sampled_from(["", "anna\nuser:7"]),
    key=st.sampled_from(["ip", "user|ip", "header:X-Key"]),
    path=st.sampled_from(["", "/a/*", "*"]),
    methods=st.lists(st.sampled_from(METHODS), unique=True).map(" ".join),
    cost=st.integers(1, 100),
    ban=st.just("15m"),
    ban_after=st.none() | st.integers(1, 100),
    mode=st.sampled_from(["enforce", "shadow", "off"]),
    on_error=st.sampled_from(["", "open", "closed", "local"]),
    status=st.none() | st.integers(400, 599),
    order=st.integers(-(2**31), 2**31 - 1),
)


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(SPECS, unique_by=lambda spec: spec.name, min_size=1, max_size=4))
def test_a_dumped_file_loads_again(specs: list[PolicySpec]) -> None:
    text = dump(LimitPolicy(**asdict(spec)) for spec in specs)
    load(text, prune=True)
    stored = LimitPolicy.objects.order_by("name")
    assert [row.spec() for row in stored] == sorted(specs, key=lambda spec: spec.name)
    assert dump(reversed(stored)) == text
    assert {change.kind for change in load(text)} == {"unchanged"}


def test_a_file_has_no_keys_versions_or_times_of_this_site() -> None:
    make_policy()
    make_override(ends_at="2027-01-31T12:00:00Z", reason=HOSTILE)
    pay, blocked = json.loads(dump(all_rows()))
    assert pay["model"] == "resty_limits.limitpolicy"
    assert blocked["fields"]["ends_at"] == "2027-01-31T12:00:00Z"
    for entry in (pay, blocked):
        assert entry.keys() == {"model", "fields"}
        assert not entry["fields"].keys() & {"id", "version", "created_at", "updated_at"}
    assert dump(all_rows()).replace("\n", "").isprintable()


@pytest.mark.db
def test_fixtures_find_rows_by_their_natural_keys(tmp_path: Path) -> None:
    make_policy(limit=3)
    make_override(rate="none")
    fixture = tmp_path / "limits.json"
    run("dumpdata", "resty_limits", natural_primary=True, output=str(fixture))
    assert {change.kind for change in load(fixture.read_text())} == {"unchanged"}
    LimitPolicy.objects.all().delete()
    LimitPolicy.objects.create(name="other", algorithm="fixed_window", limit=1, window="1h")
    LimitOverride.objects.update(rate="blocked")
    assert registry.get_policy("other") is not None
    run("loaddata", fixture)
    assert names() == {"other": 1, "pay": 3}
    assert [row.rate for row in LimitOverride.objects.all()] == ["none"]
    assert registry.all_policies().keys() == {"other", "pay"}


# --- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "The file is not valid JSON: Expecting value"),
        ("[" * 100_000, "The file is not valid JSON: "),
        ('[{"a": 1, "b": 2, "a": 2}]', "the key 'a' is repeated in one object"),
        (f"[{'9' * 5000}]", "The file is not valid JSON: "),
        (" " * 11_000_000, "The file is too long. Use at most 10,485,760 characters."),
        ({}, "The file is not a JSON list of rows."),
        ([3], 'Row 1: model: A row must be {"model": NAME, "fields": {...}}'),
        ([{**policy(), "more": 1}], 'Row 1: model: A row must be {"model": NAME, "fields": {...}}'),
        ([{"model": ["x"], "fields": {}}], "with the name resty_limits.limitpolicy or resty_limits.limitoverride."),
        ([{"model": "auth.user", "fields": {}}], 'Row 1: model: A row must be {"model": NAME, "fields": {...}}'),
        ([{"model": "resty_limits.LimitPolicy"}], 'Row 1: model: A row must be {"model": NAME, "fields": {...}}'),
        ([policy(limits=3)], "Row 1: limits: There is no such field. Did you mean 'limit'?"),
        ([policy(**{"x\u202e" * 200: 3})], "x\\u202e…: There is no such field. Use name, description, algorithm"),
        ([policy(), policy(name="b", limit="3")], "Row 2: limit: This must be a whole number of at most 64 bits."),
        ([policy(cost=True)], "Row 1: cost: This must be a whole number of at most 64 bits."),
        ([policy(limit=3.7)], "Row 1: limit: This must be a whole number of at most 64 bits."),
        ([policy(burst="3")], "Row 1: burst: This must be a number of at most 64 bits."),
        (
            [policy(algorithm="leaky_bucket", rate="1/s", limit=None, window="", burst=float("nan"))],
            "Row 1 (pay): burst: ",
        ),
        ([policy(burst=10**400)], "Row 1: burst: This must be a number of at most 64 bits."),
        ([policy(limit=2**62)], "Row 1 (pay): limit: This must be from 1 to 1,000,000,000."),
        ([policy(order=2**40)], "Row 1 (pay): order: "),
        ([policy(window=None)], "Row 1: window: This must be a string"),
        ([policy(tiers={"pro": "600/m"})], "Row 1: tiers: This must be a string"),
        ([policy(description="a\x00")], "Row 1: description: This must be a string without NUL characters"),
        ([policy(description="\ud800")], "Row 1: description: This must be a string without NUL characters"),
        ([policy(tiers="a: 1/h\nb: x")], "Row 1 (pay): tiers: Line 2, “b: x”: 'x' is not a rate"),
        ([policy(mode="x\n" * 1000)], "Row 1 (pay): mode: Value 'x\\nx\\n"),
        ([policy(), override(), policy()], "Row 3 (pay): fields: Row 1 has the same name. Remove one of them."),
        (
            [override(), override(rate="none")],
            "Row 2 (user 7 in all limits): fields: Row 1 has the same kind, key, limit.",
        ),
        ([override(kind="usr")], "Row 1 (usr 7 in all limits): kind: Value 'usr' is not a valid choice."),
        ([override(key=7)], "Row 1: key: This must be a string"),
        ([override(starts_at="soon")], "Row 1: starts_at: “soon” value has an invalid format."),
        ([override(ends_at="2027-01-31")], "Row 1: ends_at: This time has no time zone. Write it as in 2027-01-31T"),
        ([override(ends_at="0001-01-01T00:00:00+23:00")], "Row 1: ends_at: This time is outside of the calendar."),
        (
            [override(starts_at="2027-01-31T12:00Z", ends_at="2027-01-01T12:00Z")],
            "Row 1 (user 7 in all limits): ends_at: The override ends before it begins.",
        ),
        ([override(limit="pay", rate="1.5/s"), policy()], "Row 1 (user 7 in pay): rate: '1.5/s' is not"),
    ],
    ids=lambda value: ascii(value)[-40:],
)
def test_a_mistake_names_its_row_and_field(content: Any, message: str) -> None:
    with CaptureQueriesContext(connection) as queries, pytest.raises(BadFile) as caught:
        load(content if isinstance(content, str) else json.dumps(content))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not any("INSERT" in query["sql"] for query in queries)


def test_all_mistakes_are_listed_and_very_many_are_counted() -> None:
    with pytest.raises(BadFile) as caught:
        load(json.dumps([policy(limit=0, key="?"), 3, policy(name="other", mode="?")]))
    listed = [line.split(": ")[:2] for line in str(caught.value).split("\n")]
    assert sorted(listed[:2]) == [["Row 1 (pay)", "key"], ["Row 1 (pay)", "limit"]]
    assert listed[2:] == [["Row 2", "model"], ["Row 3 (other)", "mode"]]
    with pytest.raises(BadFile, match=r"\.\.\. and 30 more\."):
        load(json.dumps([1] * 50))


def test_an_override_is_compared_with_the_policy_in_the_file() -> None:
    make_policy(key="ip")  # a window has no burst
    content = [
        override(limit="pay", rate="5/s burst=2"),
        policy(algorithm="leaky_bucket", rate="1/s", limit=None, window=""),
    ]
    assert [change.kind for change in load(json.dumps(content))] == ["created", "changed"]


@pytest.mark.parametrize("use_tz", [True, False])
def test_times_fit_the_time_zone_support_of_the_site(settings: Any, use_tz: bool) -> None:
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "Europe/Berlin"
    (change,) = load(json.dumps([override(ends_at="2027-01-31T12:00:00Z")]), dry_run=True)
    assert f"ends_at: 2027-01-31 {'12:00:00+00:00' if use_tz else '13:00:00'}" in change.lines
    naive = json.dumps([override(ends_at="2027-01-31T12:00:00")])
    if use_tz:
        with pytest.raises(BadFile, match="has no time zone"):
            load(naive)
    else:
        assert "ends_at: 2027-01-31 12:00:00" in load(naive, dry_run=True)[0].lines


# --- effects -------------------------------------------------------------------------------------------------------


@pytest.mark.db
def test_a_load_is_done_as_a_whole_or_not_at_all() -> None:
    def fail(sender: Any, instance: LimitPolicy, **kwargs: Any) -> None:
        if instance.name == "z":
            raise KeyError("z")

    make_policy("gone")
    assert registry.get_policy("gone") is not None
    pre_save.connect(fail, sender=LimitPolicy)
    try:
        with pytest.raises(KeyError):
            load(json.dumps([policy(name="a"), policy(name="z")]), prune=True)
    finally:
        pre_save.disconnect(fail, sender=LimitPolicy)
    assert names() == {"gone": 3}
    make_policy("later")  # takes effect as before
    assert registry.all_policies().keys() == {"gone", "later"}


def test_a_load_takes_effect_with_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[str] = []
    monkeypatch.setattr(invalidation, "announce", announced.append)
    make_policy("other", limit=1, key="ip")
    assert registry.get_policy("other") is not None
    content = [policy(), policy(name="free"), *(override(key=str(number)) for number in range(50))]
    with CaptureQueriesContext(connection) as queries:
        load(json.dumps(content))
    assert sum('ends_at" IS NULL' in query["sql"] for query in queries) == 1
    assert current.find("pay", "49", ("user",)) is not None
    assert registry.all_policies().keys() == {"free", "other", "pay"}
    assert announced == ["other", "pay", "free", invalidation.OVERRIDES]


def seconds(text: str) -> float:
    """The processor time of a refused load, at best."""
    times = []
    for _ in range(3):
        start = time.process_time()
        with pytest.raises(BadFile):
            load(text)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("kind", ["repeated key", "repeated rows", "unknown fields"])
def test_the_time_of_a_load_is_linear_in_the_size_of_the_file(kind: str) -> None:
    def text(size: int) -> str:
        keys = [f"key{number}" for number in range(size * 50)]
        match kind:
            case "repeated key":  # 150 KB, and eight times as many
                return "[{" + ", ".join(f'"{key}": 1' for key in [*keys, keys[-1]]) + "}]"
            case "repeated rows":
                return json.dumps([override()] * size)
            case _:
                return json.dumps([policy(**dict.fromkeys(keys[:size], 1))])

    assert seconds(text(2400)) < 24 * seconds(text(300))  # a quadratic algorithm takes 64 times as long


def test_the_number_of_queries_is_linear_in_the_number_of_rows() -> None:
    def queries(prefix: str, count: int) -> int:
        with CaptureQueriesContext(connection) as captured:
            load(json.dumps([policy(name=f"{prefix}{number}") for number in range(count)]))
        return len(captured)

    ten, twenty, thirty = (queries(prefix, count) for prefix, count in (("a", 10), ("b", 20), ("c", 30)))
    assert thirty - twenty == twenty - ten <= 20


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.db
def test_the_command_carries_policies_and_overrides_over(tmp_path: Path) -> None:
    make_policy("a", tiers="pro: 4/h")
    make_policy("b", limit=7)
    make_override(key="192.0.2.1", rate="none", limit="b")
    file = tmp_path / "limits.json"
    assert run("limits_policies", "dump", file) == ""
    assert file.read_text() == run("limits_policies", "dump", "-")
    assert len(json.loads(file.read_text())) == 2
    run("limits_policies", "dump", file, "--overrides")
    LimitPolicy.objects.filter(name="b").delete()
    LimitPolicy.objects.update(tiers="", limit=9)
    make_policy("c")
    version = LimitPolicy.objects.get(name="a").version
    make_override(key="192.0.2.3")
    output = run("limits_policies", "load", file, "--dry-run", "--prune")
    assert "  created  limit policy  b\n           name: b\n" in output
    assert "  changed  limit policy  a\n           limit: 9 → 3\n           tiers: (empty) → pro: 4/h\n" in output
    assert "  deleted  limit policy  c\n" in output
    assert "  deleted  limit override  address 192.0.2.3 in all limits\n" in output
    assert output.endswith("1 created, 1 changed, 2 deleted, 1 unchanged. Nothing was changed (--dry-run).\n")
    assert names() == {"a": 9, "c": 3}
    assert run("limits_policies", "load", file).endswith("1 created, 1 changed, 1 unchanged.\n")
    assert names() == {"a": 3, "b": 7, "c": 3}
    assert LimitPolicy.objects.get(name="a").version == version + 1
    assert LimitOverride.objects.count() == 2
    run("limits_policies", "load", file, "--prune")
    assert names() == {"a": 3, "b": 7}
    assert LimitPolicy.objects.get(name="a").version == version + 1
    assert [row.key for row in LimitOverride.objects.all()] == ["192.0.2.1"]
    run("limits_policies", "dump", file)
    run("limits_policies", "load", file, "--prune")  # the file has no overrides
    assert LimitOverride.objects.count() == 1
    file.write_text(dump(LimitOverride.objects.all()))
    run("limits_policies", "load", file, "--prune")  # the file has no policies
    assert names() == {"a": 3, "b": 7}


def test_the_command_reads_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps([policy()])))
    run("limits_policies", "load", "-")
    assert names() == {"pay": 3}
    monkeypatch.setattr("sys.stdin", io.StringIO("[]"))
    assert run("limits_policies", "load", "-", "--prune") == "The file is empty.\n"
    assert names() == {"pay": 3}


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"Cannot use .*no/where"):
        run("limits_policies", "dump", tmp_path / "no" / "where")
    file = tmp_path / "limits.json"
    with pytest.raises(CommandError, match=r"Cannot use .*limits\.json"):
        run("limits_policies", "load", file)
    file.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(CommandError, match="can't decode"):
        run("limits_policies", "load", file)
    file.write_text(json.dumps([policy(), policy(name="other", window="soon")]))
    with pytest.raises(CommandError, match=r"Row 2 \(other\): window: "):
        run("limits_policies", "load", file)
    assert names() == {}
    file.write_text(json.dumps([policy()]))
    with breakable("limitpolicy") as break_table:
        break_table(True)
        with pytest.raises(CommandError, match="The database rejected this: "):
            run("limits_policies", "load", file)


# --- the admin -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [POLICIES, OVERRIDES])
def test_selected_rows_are_exported_with_the_permission_to_view_them(url: str) -> None:
    model = LimitPolicy if url == POLICIES else LimitOverride
    rows = (
        [make_policy("a"), make_policy("b")] if url == POLICIES else [make_override(), make_override(key="192.0.2.2")]
    )
    data = {"action": "export_selected", "_selected_action": [rows[1].pk]}
    reply = person(f"view_{model._meta.model_name}").post(url, data)
    assert reply["Content-Disposition"] == f'attachment; filename="{model._meta.label_lower}.json"'
    assert reply.content.decode() == dump(rows[1:])


def test_the_lists_offer_the_export(admin_client: Client) -> None:
    make_policy()
    assert "Export the selected limits" in admin_client.get(POLICIES).content.decode()
