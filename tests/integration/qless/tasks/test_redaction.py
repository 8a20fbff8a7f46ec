"""Redaction of the arguments of tasks: secrets are hidden, also if they were given by position."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.qless import Task, client, group
from resty_django.qless.redaction import HIDDEN, UNNAMED, redacted_job, without_secrets
from tests.integration.qless.conftest import change_settings, job_of
from tests.integration.qless.tasks import examples

pytestmark = pytest.mark.redis


def shown(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
    return redacted_job(job_of(client, task.delay(*args, **kwargs).id))


def test_secrets_are_hidden_by_name_and_by_position(site: Any) -> None:
    assert shown(examples.log_in, "ada", "geheim") == {"args": ["ada", HIDDEN], "kwargs": {}}
    assert shown(examples.log_in, "ada", password="geheim") == {"args": ["ada"], "kwargs": {"password": HIDDEN}}
    assert shown(examples.log_in, user="ada", password={"a": "geheim"}) == {
        "args": [],
        "kwargs": {"user": "ada", "password": HIDDEN},
    }
    assert shown(examples.keep, "a", "b") == {"args": [HIDDEN, HIDDEN], "kwargs": {}}
    assert shown(examples.add, 1, 2) == {"args": [1, 2], "kwargs": {}}


def test_the_result_of_the_step_before_is_the_first_argument(site: Any) -> None:
    for before in (examples.txid.s(), group(examples.add.s(1))):
        result = (before | examples.log_in.s("geheim")).delay()
        assert redacted_job(job_of(client, result.id))["args"] == [HIDDEN]


def test_the_outcome_is_the_first_argument_of_a_callback(site: Any) -> None:
    result = examples.add.apply_async((1,), task_id="1", on_complete=examples.log_in.s("geheim").set(task_id="2"))
    result.revoke()
    assert redacted_job(job_of(client, "2"))["args"] == [HIDDEN]


def of(klass: str, data: Any) -> Any:
    return redacted_job(job_of(client, client.queues["q"].put(klass, data)))


def test_positional_arguments_of_an_unknown_class_are_hidden(site: Any) -> None:
    assert of("gone.tasks.log_in", {"args": [{"a": 1}], "kwargs": {"a": 1}}) == {"args": UNNAMED, "kwargs": {"a": 1}}
    assert of("celery:gone", {"args": ["geheim"], "kwargs": {}}) == {"args": UNNAMED, "kwargs": {}}
    items, shown = ["geheim", 4711, ["geheim"], {"order": 1, "pin": ["a"], "token": "x"}], {"order": 1, "pin": ["a"]}
    hidden = [UNNAMED, UNNAMED, UNNAMED, {**shown, "token": HIDDEN}]
    assert of("Ruby::Job", items) == hidden
    assert of("Ruby::Job", {"args": items, "id": 7}) == {"args": hidden, "id": 7}
    assert of("Ruby::Job", {"arguments": items}) == {"arguments": hidden}
    assert of("Ruby::Job", {"args": "geheim"}) == {"args": UNNAMED}
    assert of("Ruby::Job", "geheim") == UNNAMED
    by_name = {"order": 1, "names": ["a", 2]}
    assert of("Ruby::Job", {**by_name, "token": "x"}) == {**by_name, "token": HIDDEN}


def test_positional_arguments_without_a_parameter_are_hidden(site: Any) -> None:
    assert of(examples.log_in.name, {"args": ["ada", "x", "new"], "kwargs": {}})["args"] == ["ada", HIDDEN, HIDDEN]
    assert of(examples.keep_all.name, {"args": ["a", "b", "c"], "kwargs": {}})["args"] == ["a", HIDDEN, HIDDEN]


def test_without_words_to_redact_nothing_is_hidden_by_position(site: Any, settings: Any) -> None:
    change_settings(settings, REDACT=[])
    for klass in ("Ruby::Job", "gone.tasks.log_in", examples.log_in.name):
        assert of(klass, {"args": ["a", "b"], "kwargs": {}}) == {"args": ["a", "b"], "kwargs": {}}


@pytest.mark.parametrize("name", ["cardNumber", "Card-Number", "card number", "X-API-Key", "userPwd", "passwd"])
def test_names_are_compared_without_separators_also_in_pairs(name: str) -> None:
    assert without_secrets({name: 1, "card": 2}) == {name: HIDDEN, "card": 2}
    assert without_secrets({"headers": [[name, 1], ("card", {name: 2})]}) == {
        "headers": [[name, HIDDEN], ["card", {name: HIDDEN}]]
    }
    assert without_secrets([name, 1]) == [name, 1]
