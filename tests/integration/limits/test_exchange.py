"""Policies as JSON: what is written is read again, mistakes are told where they are, and nothing is done by half."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings
from hypothesis import strategies as st

from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import export, registry
from resty_django.limits.policies.export import BadFile, read, write
from resty_django.limits.policies.spec import METHODS, PolicySpec, find_problems
from tests.integration.limits.policy_tools import make_policy

GOOD = {"name": "pay", "algorithm": "fixed_window", "limit": 3, "window": "1h"}


def file_with(*policies: Any, **head: Any) -> str:
    return json.dumps({"format": "resty_django.limits", "version": 1, "policies": list(policies), **head})


def problems(text: str) -> list[str]:
    with pytest.raises(BadFile) as caught:
        read(text)
    return caught.value.problems


SPECS = st.builds(
    PolicySpec,
    name=st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True),
    algorithm=st.just("leaky_bucket"),
    description=st.text(st.characters(codec="utf-8"), max_size=50),
    rate=st.sampled_from(["1/s", "30/min", "5 per hour"]),
    burst=st.none() | st.floats(0, 1e9),
    tiers=st.sampled_from(["", "pro: 5/s burst=2\nplan:x: none", "many: 5/s;9/min"]),
    exempt_networks=st.sampled_from(["", "10.0.0.0/8\n2001:db8::/32"]),
    exempt_users=st.sampled_from(["", "anna\nuser:7"]),
    exempt_groups=st.sampled_from(["", "Shop managers"]),
    exempt_paths=st.sampled_from(["", "/a/*\n*"]),
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


@settings(max_examples=100, deadline=None)
@given(st.lists(SPECS, unique_by=lambda spec: spec.name, max_size=5))
def test_what_is_written_is_read_again(specs: list[PolicySpec]) -> None:
    assert all(not find_problems(spec) for spec in specs)
    text = write(specs)
    assert sorted(read(text), key=lambda spec: spec.name) == sorted(specs, key=lambda spec: spec.name)
    assert write(read(text)) == text


def test_a_file_leaves_out_what_is_as_it_would_be() -> None:
    spec = PolicySpec(name="pay", algorithm="leaky_bucket", rate="2/s", burst=3.0)
    assert json.loads(write([spec])) == {
        "format": "resty_django.limits",
        "version": 1,
        "policies": [{"name": "pay", "algorithm": "leaky_bucket", "rate": "2/s", "burst": 3}],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The file is not JSON"),
        ("[]", "The file is not a JSON object"),
        ("[" * 100_000, "The file is not JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' is repeated"),
        (file_with({**GOOD, "cost": float("nan")}), "NaN is not a JSON number"),
        (file_with(format="other"), '"format" must be "resty_django.limits", not "other".'),
        (file_with(version=2), '"version" must be 1, not 2. Export the policies again, or update this site.'),
        (file_with(version=True), '"version" must be 1, not true'),
        (file_with(policies={}), '"policies" must be a list.'),
        (
            file_with(more=1),
            '"more" is not a valid key; the keys are format, version, policies, overrides. Remove it.',
        ),
        (file_with(3), "policies[0] must be an object, not 3."),
        (file_with(GOOD, GOOD), "policies[1]: an earlier policy also has the name 'pay'. Rename one of them."),
        (file_with({**GOOD, "limits": 3}), "policies[0] ('pay'): limits: A policy has no such field. Did you mean"),
        (file_with({"name": "pay"}), "policies[0] ('pay'): algorithm: This field is required."),
        (file_with({**GOOD, "limit": "3"}), "policies[0] ('pay'): limit: This must be a whole number, not a string."),
        (file_with({**GOOD, "window": None}), "policies[0] ('pay'): window: This must be a string, not nothing."),
        (file_with(*[GOOD] * 1001), 'The list "policies" has 1,001 entries. The maximum is 1,000.'),
        (" " * 2_000_000, "The file is too long. Use at most 1,048,576 characters."),
    ],
    ids=lambda value: value[:40],
)
def test_mistakes_are_told_where_they_are(text: str, message: str) -> None:
    (problem,) = problems(text)
    assert message in problem


def test_all_mistakes_are_told_and_very_many_are_counted() -> None:
    assert len(problems(file_with({**GOOD, "limit": 0, "key": "?"}, {**GOOD, "name": "other", "mode": "?"}))) == 3
    with pytest.raises(BadFile, match=r"\.\.\. and 30 more\."):
        read(file_with(*[1] * 50))


# --- into the database --------------------------------------------------------------------------------------------

stored = pytest.mark.usefixtures("limits_site", "transactional_db")


def names() -> dict[str, int | None]:
    return {row.name: row.limit for row in LimitPolicy.objects.all()}


@stored
@pytest.mark.db
def test_an_import_adds_changes_and_prunes() -> None:
    make_policy("same", limit=1)
    make_policy("other", limit=2)
    make_policy("gone", limit=3)
    assert registry.get_policy("other") is not None
    specs = read(
        file_with(
            *(
                {**GOOD, "key": "all", "name": name, "limit": limit}
                for name, limit in [("same", 1), ("other", 20), ("new", 4)]
            )
        )
    )
    assert str(export.plan(specs)) == "1 new, 1 changed, 1 unchanged"
    version = LimitPolicy.objects.get(name="same").version
    export.apply(specs)
    assert names() == {"same": 1, "other": 20, "gone": 3, "new": 4}
    assert LimitPolicy.objects.get(name="same").version == version
    export.apply(specs, prune=True)
    assert names() == {"same": 1, "other": 20, "new": 4}
    assert {name: policy.spec.limit for name, policy in registry.all_policies().items()} == names()


@stored
@pytest.mark.db
def test_an_import_is_done_as_a_whole_or_not_at_all() -> None:
    from django.db.models.signals import pre_save

    def fail(sender: Any, instance: LimitPolicy, **kwargs: Any) -> None:
        if instance.name == "z":
            raise KeyError("z")

    make_policy("gone")
    pre_save.connect(fail, sender=LimitPolicy)
    try:
        with pytest.raises(KeyError):
            export.apply(read(file_with({**GOOD, "name": "a"}, {**GOOD, "name": "z"})), prune=True)
    finally:
        pre_save.disconnect(fail, sender=LimitPolicy)
    assert names() == {"gone": 3}


# --- commands -----------------------------------------------------------------------------------------------------


def run(*args: Any, **options: Any) -> str:
    output = io.StringIO()
    call_command(*args, stdout=output, **options)
    return output.getvalue()


@stored
def test_commands_carry_policies_over(tmp_path: Path) -> None:
    make_policy("a")
    make_policy("b", limit=7)
    file = tmp_path / "policies.json"
    assert run("limits_export", output=file) == ""
    assert run("limits_export") == file.read_text()
    assert [entry["name"] for entry in json.loads(run("limits_export", "b"))["policies"]] == ["b"]
    LimitPolicy.objects.all().delete()
    make_policy("c")
    output = run("limits_import", file, dry_run=True, prune=True)
    assert "new  a" in output
    assert "deleted  c" in output
    assert "2 new, 1 deleted. Nothing was written (--dry-run)." in output
    assert names() == {"c": 3}
    assert "2 new." in run("limits_import", file)
    assert names() == {"a": 3, "b": 7, "c": 3}
    run("limits_import", file, prune=True)
    assert names() == {"a": 3, "b": 7}


@stored
def test_commands_read_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(file_with(GOOD)))
    run("limits_import", "-")
    assert names() == {"pay": 3}


@stored
def test_commands_tell_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"There is no policy 'x'\. The policies are: none\."):
        run("limits_export", "x")
    with pytest.raises(CommandError, match="Cannot write"):
        run("limits_export", output=tmp_path / "no" / "where")
    with pytest.raises(CommandError, match="Cannot read"):
        run("limits_import", tmp_path / "nothing.json")
    file = tmp_path / "policies.json"
    file.write_text(file_with(GOOD, {**GOOD, "name": "other", "window": "soon"}))
    with pytest.raises(CommandError, match=r"(?s)policies\[1\] \('other'\): window: .*Nothing was written\."):
        run("limits_import", file)
    assert names() == {}
