"""Names of tasks that survive a move of their function: `name=` and `aliases=`."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import pytest

from resty_django.qless import DuplicateTask, NotAllowed, client, task
from resty_django.qless.job_classes import discover, find
from resty_django.qless.management.supervisor import Supervisor
from resty_django.qless.tasks.schedule import AHEAD, declare
from resty_django.qless.worker.loop import ExitCode
from resty_django.qless.worker.options import options
from tests.integration.qless.conftest import LONG, change_settings, job_of
from tests.integration.qless.tasks.conftest import Deploy, recurring_job, work
from tests.integration.qless.worker.conftest import StartInProcess

pytestmark = [pytest.mark.redis, pytest.mark.slow]

ADD = "def add(a, b):\n    return a + b\n"
OLD, NEW = "named_shop_old", "named_shop_new"


def enqueue(module: str, *args: Any) -> Any:
    return importlib.import_module(module).add.delay(*args)


def test_job_carries_the_name_for_clients_of_any_language(deploy: Deploy, valkey: Any) -> None:
    deploy(**{OLD: f'@task(name="shop.add", queue="q")\n{ADD}'})
    result = enqueue(OLD, 1, 2)
    assert valkey.hget(f"ql:j:{result.id}", "klass") == b"shop.add"
    assert importlib.import_module(OLD).add.name == "shop.add"


@pytest.mark.parametrize(
    ("before", "module", "after"),
    [
        ('name="shop.add"', NEW, 'name="shop.add"'),
        ("", NEW, f'aliases=["{OLD}.add"]'),
        ("", OLD, 'name="shop.add"'),
    ],
    ids=["moved", "moved with an alias", "named"],
)
def test_waiting_job_runs_after_its_task_was_moved_or_named(
    deploy: Deploy, start_worker: StartInProcess, before: str, module: str, after: str
) -> None:
    deploy(**{OLD: f'@task({before + ", " if before else ""}queue="q")\n{ADD}'})
    waiting = enqueue(OLD, 1, 2)
    deploy(**{module: f'@task({after}, queue="q")\n{ADD}'})
    start_worker()
    assert waiting.get(LONG) == 3
    assert enqueue(module, 3, 4).get(LONG) == 7


def test_unique_task_stays_one_job_when_its_function_moves(deploy: Deploy) -> None:
    deploy(**{OLD: f'@task(name="shop.add", unique=True)\n{ADD}'})
    first = enqueue(OLD, 1, 2)
    deploy(**{NEW: f'@task(name="shop.add", unique=True)\n{ADD}'})
    assert enqueue(NEW, 1, 2) == first


def test_name_reaches_no_module_that_may_not_have_tasks(deploy: Deploy, site: Any) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}'})
    importlib.import_module(OLD)
    change_settings(site, MODULES=[])
    with pytest.raises(NotAllowed, match=rf"'{OLD}\.add'"):
        find("shop.add")


def test_unknown_name_is_refused_after_all_modules_were_imported(deploy: Deploy) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}'})
    with pytest.raises(NotAllowed, match=r"'shop\.remove'"):
        find("shop.remove")
    assert OLD in sys.modules


def test_module_that_cannot_be_imported_hides_no_other_task(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    deploy(**{OLD: "1 / 0\n", NEW: f'@task(name="shop.add")\n{ADD}'})
    assert find("shop.add").perform is not None  # type: ignore[union-attr]
    assert f"{OLD} cannot be imported" in caplog.text


@pytest.mark.parametrize(
    "option", ['name="shop.add"', f'name="{OLD}.add"', f'aliases=["{OLD}.add"]', 'aliases=["a", "shop.add"]']
)
def test_two_tasks_with_one_name_are_rejected(deploy: Deploy, option: str) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}', NEW: f"@task({option})\n{ADD}"})
    (error,) = discover().values()
    assert isinstance(error, DuplicateTask)
    assert re.match(rf"Two tasks have the name '.*': {OLD}\.add and {NEW}\.add\. Change ", str(error))


def test_worker_does_not_start_with_two_tasks_of_one_name(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    code = f'@task(name="shop.add")\n{ADD}'
    deploy(**{OLD: code, NEW: code})
    assert Supervisor(options(queues=("q",), processes=2)).run() == ExitCode.CONFIG


def test_module_that_is_imported_again_replaces_its_tasks(deploy: Deploy) -> None:
    deploy(**{OLD: f'@task(name="shop.add")\n{ADD}'})
    module = importlib.import_module(OLD)
    first = module.add
    assert importlib.reload(module).add is not first
    assert find("shop.add") is module.add


@pytest.mark.parametrize("name", ["", "two words", "celery:add", "a" * 201, "1st", "näme\n"])
def test_name_that_jobs_cannot_have_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="name= contains"):
        task(name=name)(declare)
    with pytest.raises(ValueError, match="aliases= contains"):
        task(aliases=[name])(declare)


def test_name_of_another_type_is_rejected() -> None:
    with pytest.raises(TypeError, match="name="):
        task(name=7)(declare)  # type: ignore[call-overload]


# --- periodic tasks ----------------------------------------------------------------------------------------------


def tick(option: str) -> str:
    return f"@task({option})\ndef tick():\n    pass\n"


def test_recurring_job_follows_its_task_to_a_new_name(deploy: Deploy) -> None:
    deploy(**{OLD: tick("every=60")})
    work()
    assert recurring_job(f"every-{OLD}.tick")
    deploy(**{OLD: tick('every=60, name="shop.tick"')})
    work()
    assert client.jobs.get(f"every-{OLD}.tick") is None
    assert recurring_job("every-shop.tick").klass == "shop.tick"


def test_recurring_job_of_a_person_is_left_alone(deploy: Deploy) -> None:
    client.queues["q"].recur("shop.jobs.Tick", {}, 60, jid="every-shop.tick")
    deploy(**{OLD: tick('every=60, aliases=["shop.tick"]')})
    work()
    assert recurring_job("every-shop.tick")


def test_cron_jobs_follow_their_task_to_a_new_name(deploy: Deploy) -> None:
    deploy(**{OLD: tick('cron="*/5 * * * *"')})
    work()
    deploy(**{NEW: tick(f'cron="*/5 * * * *", aliases=["{OLD}.tick"]')})
    work()
    waiting = client.queues["default"].jobs.scheduled()
    assert [job_of(client, jid).klass for jid in waiting] == [f"{NEW}.tick"] * AHEAD
