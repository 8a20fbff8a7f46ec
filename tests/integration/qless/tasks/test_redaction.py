"""What is shown of the arguments of tasks: no secrets, also where they were given by position."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.qless import Job, Task, client, group
from resty_django.qless.redaction import HIDDEN, redacted_job
from tests.integration.qless.tasks import examples

pytestmark = pytest.mark.redis


def shown(task: Task[..., Any], *args: Any, **kwargs: Any) -> Any:
    job = task.delay(*args, **kwargs).job()
    assert isinstance(job, Job)
    return redacted_job(job)


def test_secrets_are_hidden_by_name_and_by_position(site: Any) -> None:
    both = {"args": ["ada", HIDDEN], "kwargs": {}}
    assert shown(examples.log_in, "ada", "geheim") == both
    assert shown(examples.log_in, "ada", password="geheim") == {"args": ["ada"], "kwargs": {"password": HIDDEN}}
    assert shown(examples.log_in, user="ada", password={"a": "geheim"}) == {
        "args": [],
        "kwargs": {"user": "ada", "password": HIDDEN},
    }
    assert shown(examples.keep, "a", "b") == {"args": [HIDDEN, HIDDEN], "kwargs": {}}
    assert shown(examples.add, 1, 2) == {"args": [1, 2], "kwargs": {}}


def test_the_result_of_the_step_before_is_the_first_argument(site: Any) -> None:
    job = (examples.txid.s() | examples.log_in.s("geheim")).delay().job()
    assert isinstance(job, Job)
    assert redacted_job(job)["args"] == [HIDDEN]
    body = (group(examples.add.s(1)) | examples.log_in.s("geheim")).delay().job()
    assert isinstance(body, Job)
    assert redacted_job(body)["args"] == [HIDDEN]


def test_the_outcome_is_the_first_argument_of_a_callback(site: Any) -> None:
    result = examples.add.apply_async((1,), task_id="1", on_complete=examples.log_in.s("geheim").set(task_id="2"))
    result.revoke()
    callback = client.jobs.get("2")
    assert isinstance(callback, Job)
    assert redacted_job(callback)["args"] == [HIDDEN]


def test_of_a_function_that_is_not_known_nothing_is_shown(site: Any) -> None:
    def of(klass: str, data: Any) -> Any:
        job = client.jobs.get(client.queues["q"].put(klass, data))
        assert isinstance(job, Job)
        return redacted_job(job)

    assert of("gone.tasks.log_in", {"args": ["geheim"], "kwargs": {}}) == {"args": HIDDEN, "kwargs": {}}
    assert of("celery:gone", {"args": ["geheim"], "kwargs": {}}) == {"args": HIDDEN, "kwargs": {}}
    assert of("Ruby::Job", {"args": ["a"]}) == {"args": ["a"]}
    assert of("Ruby::Job", {"order": 1, "token": "x"}) == {"order": 1, "token": HIDDEN}
