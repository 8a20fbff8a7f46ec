"""What is shown of the arguments of tasks: no secrets, also where they were given by position."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.qless import Task, client, group
from resty_django.qless.redaction import HIDDEN, redacted_job, without_secrets
from tests.integration.qless.conftest import job_of
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


def test_of_a_function_that_is_not_known_nothing_is_shown(site: Any) -> None:
    def of(klass: str, data: Any) -> Any:
        return redacted_job(job_of(client, client.queues["q"].put(klass, data)))

    assert of("gone.tasks.log_in", {"args": ["geheim"], "kwargs": {}}) == {"args": HIDDEN, "kwargs": {}}
    assert of("celery:gone", {"args": ["geheim"], "kwargs": {}}) == {"args": HIDDEN, "kwargs": {}}
    assert of("Ruby::Job", {"args": ["a"]}) == {"args": ["a"]}
    assert of("Ruby::Job", {"order": 1, "token": "x"}) == {"order": 1, "token": HIDDEN}


@pytest.mark.parametrize("name", ["cardNumber", "Card-Number", "card number", "X-API-Key", "userPwd", "passwd"])
def test_names_are_compared_without_separators_also_in_pairs(name: str) -> None:
    assert without_secrets({name: 1, "card": 2}) == {name: HIDDEN, "card": 2}
    assert without_secrets({"headers": [[name, 1], ("card", {name: 2})]}) == {
        "headers": [[name, HIDDEN], ["card", {name: HIDDEN}]]
    }
    assert without_secrets([name, 1]) == [name, 1]
